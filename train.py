"""Train a model: `python train.py configs/quickstart.py`. The same command resumes it.

Reads in the order in which things happen. Every setting can be changed on the command line, as in
`--model.d-model 256`; `--help` lists them.
"""

import signal
import sys

if __name__ == "__main__" and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends the imports quietly

from transformer.commands.command_line import TrainCommand, parse_train
from transformer.commands.program import run_command
from transformer.config.files import to_json
from transformer.runs.folder import held


def main(words: list[str]) -> None:
    command = parse_train(words)
    if command.print_config:
        print(to_json(command.settings), end="")
        return
    if command.verify_resume:
        from transformer.commands.verify_resume import verify_resume

        verify_resume(sys.argv[0], words, command.run, print)
        return
    if command.plan is not None:
        from transformer.commands.plan import show_plan

        show_plan(command, print)
        return

    # Slow imports come after the command line has been understood.
    from contextlib import ExitStack

    from transformer.machine import devices, distributed
    from transformer.machine.signals import end_cleanly

    end_cleanly()
    with ExitStack() as until_the_end:
        if command.distributed:
            timeouts = command.partner_timeout, command.stall_timeout
            until_the_end.enter_context(distributed.distributed_session(*timeouts))
        devices.configure_devices(command.device)
        if command.doctor:
            from transformer.commands.doctor import examine_data

            examine_data(command, print)
            return
        if command.replay:
            from transformer.commands.replay import replay

            replay(command.run, command.replay, print)
            return
        if distributed.is_first():
            until_the_end.enter_context(held(command.run))
        train(command)


def train(command: TrainCommand) -> None:
    """Trains in a run folder that this process has locked, with all processes of the session."""
    from transformer.commands.start import (
        check_settings,
        find_starting_point,
        initial_state,
        prepare,
    )
    from transformer.commands.trainer import Trainer
    from transformer.machine import distributed
    from transformer.machine.malloc import return_blocks
    from transformer.machine.memory import free_memory
    from transformer.training import loop, sharding
    from transformer.training.programs import Updates

    log = print if distributed.is_first() else lambda _: None
    mesh = sharding.make_mesh()
    check_settings(command.settings, log)

    # Text becomes tokens, tokens become a plan of batches.
    with distributed.first_process_first("the run folder"):
        data = prepare(command, log)
        start = find_starting_point(command, data)

    # The state on all devices: new, with the weights of another run, or of the last checkpoint.
    state = initial_state(command, data, start, mesh, log)

    # Training. The update of each shape of batches is compiled while the first ones are made.
    trainer = Trainer(command, data, start, state, mesh, log)
    with trainer.opened():
        updates = Updates(mesh, data.config, trainer.samples(), free_memory)
        if updates.is_tight:
            return_blocks()
        if updates.summary:
            log(f"memory      {updates.summary}")
        trainer.stop_on_signals()
        try:
            state = loop.train(data.config.train, state, trainer.stream(), updates, trainer)
        finally:
            updates.cancel()
    trainer.print_outcome(state)
    updates.close()  # before the session ends, whose processes do not wait long for each other


if __name__ == "__main__":
    run_command(main)
