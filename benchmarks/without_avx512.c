/* Hides AVX-512, AMX and AVX-VNNI from a program and all that it starts, as on a processor with AVX2
 * alone: what asks the processor (XLA, YNNPACK, oneDNN, MKL, PyTorch) finds AVX2. Flags of each
 * library do not: XLA's --xla_cpu_max_isa holds for its own code, not for its matrix products.
 *
 *     mkdir -p build
 *     cc -O2 -shared -fPIC -o build/without_avx512.so benchmarks/without_avx512.c
 *     LD_PRELOAD=$PWD/build/without_avx512.so JAX_ENABLE_COMPILATION_CACHE=false \
 *         python -m benchmarks.training_step
 *
 * For Linux on x86-64. Where the processor lets the instruction CPUID fail (cpuid_fault in
 * /proc/cpuinfo; Intel's do), it is done here instead, and what it finds is masked (arch_prctl(2),
 * ARCH_SET_CPUID). Elsewhere it is replaced in an environment's libraries beforehand
 * (benchmarks/replace_cpuid.py), and CPUID_IS_REPLACED=1 says so. The cache of compiled programs knows
 * of neither: leave it out, or give it another folder.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#define ARCH_SET_CPUID 0x1012
#define BIT(n) (1u << (n))

static struct sigaction others[2];

static long let_cpuid_pass(long passes) { return syscall(SYS_arch_prctl, ARCH_SET_CPUID, passes); }

static void do_cpuid(int number, siginfo_t *info, void *context) {
  greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
  const uint8_t *instruction = (const uint8_t *)registers[REG_RIP];
  int is_replaced = number == SIGILL; /* by UD2 */
  if (instruction[0] != 0x0f || instruction[1] != (is_replaced ? 0x0b : 0xa2)) {
    sigaction(number, &others[is_replaced], NULL); /* another fault, which will come again */
    return;
  }
  uint32_t leaf = registers[REG_RAX], part = registers[REG_RCX], a, b, c, d;
  let_cpuid_pass(1);
  __asm__ volatile("cpuid" : "=a"(a), "=b"(b), "=c"(c), "=d"(d) : "a"(leaf), "c"(part));
  let_cpuid_pass(0);
  if (leaf == 7 && part == 0) {
    b &= ~(BIT(16) | BIT(17) | BIT(21) | BIT(26) | BIT(27) | BIT(28) | BIT(30) | BIT(31));
    c &= ~(BIT(1) | BIT(6) | BIT(11) | BIT(12) | BIT(14));
    d &= ~(BIT(2) | BIT(3) | BIT(8) | BIT(22) | BIT(23) | BIT(24) | BIT(25));
  }
  if (leaf == 7 && part == 1) {
    a &= ~(BIT(4) | BIT(5) | BIT(21) | BIT(23));
    d &= ~(BIT(4) | BIT(5) | BIT(19));
  }
  registers[REG_RAX] = a;
  registers[REG_RBX] = b;
  registers[REG_RCX] = c;
  registers[REG_RDX] = d;
  registers[REG_RIP] += 2;
}

__attribute__((constructor)) static void begin(void) {
  struct sigaction action = {.sa_sigaction = do_cpuid, .sa_flags = SA_SIGINFO | SA_ONSTACK};
  sigaction(SIGSEGV, &action, &others[0]);
  sigaction(SIGILL, &action, &others[1]);
  if (let_cpuid_pass(0) != 0 && !getenv("CPUID_IS_REPLACED")) {
    fputs("error: this processor or kernel does not let CPUID fail: benchmarks/replace_cpuid.py\n",
          stderr);
    exit(2);
  }
}
