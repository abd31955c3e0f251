"""The server as a program: what it says, what ends it, what mistakes on its command line get."""

import json
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import pytest
from small_run import ROOT, run

pytest.importorskip("uvicorn", reason="needs the extra `server`")
MODULE = "transformer.serving.server"


@contextmanager
def served(*words):
    """The process that serves, and its address."""
    command = [sys.executable, "-m", MODULE, *map(str, words), "--no-warm-up"]
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        said = ""
        while not (address := re.search(r"http://\S+", said)):
            line = process.stdout.readline()
            assert line, process.stderr.read()
            said += line
        yield process, address[0], said
    finally:
        process.kill()
        process.communicate()


def translation(address, text):
    """What is answered to a form, as programs send it."""
    body = urlencode({"q": text, "source": "en", "target": "de"}).encode()
    with urllib.request.urlopen(f"{address}/translate", body, timeout=60) as response:
        return json.loads(response.read())["translatedText"]


@pytest.mark.slow  # needs an extra
def test_libretranslates_own_client_gets_what_translate_py_says(undisturbed, tmp_path):
    client = pytest.importorskip("libretranslatepy", reason="needs the extra `oracles`")
    expected = run("translate.py", undisturbed, stdin="old cat\nred dog\n").stdout
    with served(undisturbed, "--port", 0) as (_, address, said):
        assert f"{undisturbed}, translator, checkpoint best" in said
        api = client.LibreTranslateAPI(address)
        assert api.translate("old cat\nred dog\n", "en", "de") == expected
        page = "<p>old <b>cat</b></p>"
        form = {"q": page, "source": "en", "target": "de", "format": "html"}
        body = urlencode(form).encode()
        with urllib.request.urlopen(f"{address}/translate", body, timeout=60) as response:
            found = json.loads(response.read())["translatedText"]
        assert re.fullmatch(r"<p>.*<b>.*</b>.*</p>", found)
        # The client has no files; this one sends forms as browsers do.
        requests = pytest.importorskip("requests", reason="needs the extra `oracles`")
        cues = "1\n00:00:01,000 --> 00:00:02,000\n{}\n"
        files, languages = (
            {"file": ("a.srt", cues.format("old cat"))},
            {"source": "en", "target": "de"},
        )
        sent = requests.post(f"{address}/translate_file", files=files, data=languages, timeout=60)
        found = requests.get(sent.json()["translatedFileUrl"], timeout=60).text
        assert found == cues.format(expected.splitlines()[0].strip())
        assert api.detect("old cat") == [{"confidence": 0, "language": "en"}]
        assert [one["code"] for one in api.languages()] == ["en", "de"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_when_it_has_answered(undisturbed, number):
    with served(undisturbed, "--port", 0) as (process, address, _):
        text = "\n".join(["old cat sees red dog likes old cat"] * 100)
        expected = translation(address, text)
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(translation, address, text)
            while not _is_asked(address):
                assert not answer.done()
            urllib.request.urlopen(f"{address}/health", timeout=60).close()  # what came is read
            process.send_signal(number)
            assert answer.result() == expected
        process.wait(timeout=60)
        assert process.stderr.read() == ""


def _is_asked(address):
    """Whether a connection to that address is established."""
    port = f":{urlsplit(address).port:04X}"
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    return any(line.split()[1].endswith(port) and line.split()[3] == "01" for line in lines)


@pytest.mark.slow
def test_the_kinds_are_served_side_by_side(undisturbed, family):
    runs = [undisturbed, family("language"), f"{family('masked')}:last"]
    with served(*runs, "--port", 0) as (_, address, said):
        with urllib.request.urlopen(f"{address}/runs", timeout=60) as response:
            described = json.loads(response.read())
        assert [one["name"] for one in described] == [str(run) for run in runs]
        assert [one["kind"] for one in described] == [
            "translator", "language model", "masked model",
        ]  # fmt: skip
        assert "checkpoint last" in said


@pytest.mark.slow
def test_it_warns_when_other_machines_can_connect(undisturbed):
    with served(undisturbed, "--port", 0, "--host", "0.0.0.0") as (_, _, said):
        assert "is reachable from other machines without authentication" in said


def refusal(*words):
    result = subprocess.run(
        [sys.executable, "-m", MODULE, *map(str, words)], cwd=ROOT, capture_output=True, text=True
    )
    assert result.returncode == 2 and "Traceback" not in result.stderr
    return result.stderr


def test_mistakes_get_a_sentence(undisturbed):
    assert "no run is given" in refusal()
    assert "nowhere is not a run" in refusal("nowhere")
    assert "port (99999) must be below 65536" in refusal(undisturbed, "--port", 99999)
    assert "characters (0) must be at least 1" in refusal(undisturbed, "--characters", 0)
    assert "waiting must be at least" in refusal(undisturbed, "--waiting", 5)
    assert "cannot listen on a..b" in refusal(undisturbed, "--host", "a..b")
    assert "has no checkpoint '7'" in refusal(f"{undisturbed}:7")
    assert "--hosts 'https://a.example': name hosts" in refusal(
        undisturbed, "--hosts", "https://a.example"
    )
    with socket.create_server(("127.0.0.1", 0)) as taken:
        said = refusal(undisturbed, "--port", taken.getsockname()[1])
    assert "Address already in use" in said and "--port" in said
