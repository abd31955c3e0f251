// A beam search, one step at a time.
const steps = JSON.parse(document.getElementById("data").textContent);
const widget = document.getElementById("widget");

const settings = widget.appendChild(element("div", "settings"));
const [back, on] = ["Back", "On"].map((name) => settings.appendChild(element("button", "", name)));
const heading = settings.appendChild(element("strong"));
const table = widget.appendChild(element("div", "scroll")).appendChild(element("table"));
let current = 0;

function row(cells, kind) {
  const line = table.appendChild(element("tr"));
  cells.forEach((text) => line.append(text instanceof Node ? text : element(kind, "", text)));
  return line;
}

function show() {
  heading.textContent = `token ${current + 1} of ${steps.length}`;
  back.disabled = current === 0;
  on.disabled = current === steps.length - 1;
  table.replaceChildren();
  row(["rank", "continues rank", "probability", "beginning of a translation"], "th");
  steps[current].forEach((one, rank) => {
    const text = element("td");
    text.append(one.before, element("mark", "", one.token.trim() ? one.token : "␣"));  // a lone blank
    const line = row([String(rank + 1), one.from ? String(one.from) : "", percent(one.probability), text], "td");
    if (one.chosen) line.className = "chosen";
  });
}

function move(by) {
  current += by;
  show();
}

back.addEventListener("click", () => move(-1));
on.addEventListener("click", () => move(1));
show();
