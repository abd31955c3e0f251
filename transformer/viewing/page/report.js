// The maps of the report: one sentence, one kind of attention, one layer, all of its heads.
const examples = JSON.parse(document.getElementById("examples").textContent);
const [sentence, kind, layer] = ["sentence", "kind", "layer"].map((id) => document.getElementById(id));

function show() {
  const { maps } = examples[sentence.selectedIndex];
  const chosen = maps[kind.selectedIndex];
  const heads = chosen.weights[layer.selectedIndex];
  const reading = document.getElementById("reading");
  reading.textContent = "";
  document.getElementById("maps").replaceChildren(...heads.map((weights, head) => {
    const figure = element("figure");
    figure.append(drawMap(chosen, weights, reading), element("figcaption", "", `head ${head + 1}`));
    return figure;
  }));
}

fill(sentence, examples.map((one) => one.source || one.target));
fill(kind, examples[0].maps.map((map) => ATTENTION[map.kind]));
fill(layer, numbered(examples[0].maps[0].weights));
sentence.selectedIndex = 0;
for (const select of [sentence, kind, layer]) {
  select.addEventListener("change", () => {
    fill(layer, numbered(examples[sentence.selectedIndex].maps[kind.selectedIndex].weights));
    show();
  });
}
show();
