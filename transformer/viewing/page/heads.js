// Two attention maps side by side; of each the model, the kind, the layer and the head are chosen.
const models = JSON.parse(document.getElementById("data").textContent);

/** A choice with its label. */
function choice(panel, label) {
  const made = panel.appendChild(element("label", "quiet", `${label} `));
  return made.appendChild(element("select"));
}

/** A panel that shows a head of a model; at first the last layer of the last kind. */
function panel(model, head) {
  const figure = element("figure");
  const settings = figure.appendChild(element("div", "settings"));
  const [ofModel, ofKind, ofLayer, ofHead] = ["model", "attention", "layer", "head"].map((label) => choice(settings, label));
  ofModel.parentElement.hidden = models.length < 2;
  const reading = element("div", "reading quiet");
  const place = element("div", "scroll");
  figure.append(place, reading);
  const chosen = () => models[ofModel.selectedIndex].maps[ofKind.selectedIndex];
  const offer = () => {
    fill(ofKind, models[ofModel.selectedIndex].maps.map((map) => ATTENTION[map.kind]));
    fill(ofLayer, numbered(chosen().weights));
    fill(ofHead, numbered(chosen().weights[ofLayer.selectedIndex]));
  };
  const show = () => {
    const map = chosen();
    const heads = map.weights[ofLayer.selectedIndex];
    reading.textContent = "Rows attend to columns, from 0 (no shade) to 1. Point at a cell, or tap it.";
    place.replaceChildren(drawMap(map, heads[ofHead.selectedIndex], reading));
  };
  fill(ofModel, models.map((one) => one.name));
  ofModel.selectedIndex = model;
  offer();
  ofHead.selectedIndex = Math.min(head, ofHead.length - 1);
  show();
  for (const select of [ofModel, ofKind, ofLayer, ofHead]) select.addEventListener("change", () => { offer(); show(); });
  return figure;
}

const widget = document.getElementById("widget");
widget.className = "pair";
widget.append(panel(0, 0), panel(models.length - 1, models.length > 1 ? 0 : 1));
