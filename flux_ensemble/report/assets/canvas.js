// What all drawings share: colours of the page, canvases as sharp as the screen, and a tip.

const OUTCOMES = ["active", "success", "interrupted", "canceled", "timeout", "failed"];
const WORDS = {
  active: "active", success: "succeeded", interrupted: "interrupted", canceled: "canceled",
  timeout: "ran out of time", failed: "failed",
};

/** A colour of the page, by the name of its variable in the style sheet. */
function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

/** A colour as red, green and blue. */
function parts(text) {
  const number = parseInt(text.slice(1), 16);
  return [number >> 16, (number >> 8) & 255, number & 255];
}

function mixed(one, other, share) {
  return one.map((value, at) => Math.round(value + share * (other[at] - value)));
}

/** Draws again when the page changes its width or its colours. */
const redraws = new Set();
let redrawing = 0;
function redraw() {
  cancelAnimationFrame(redrawing);
  redrawing = requestAnimationFrame(() => redraws.forEach((draw) => draw()));
}

/** A canvas in a box, as wide as that. */
class Surface {
  constructor(box, height) {
    this.box = box;
    this.height = height;
    this.canvas = element("canvas", { "aria-hidden": "true" });
    box.append(this.canvas);
  }

  /** The context, with one unit to a pixel of the page; everything is wiped. */
  begin(height = this.height) {
    this.height = height;
    this.ratio = Math.min(2, window.devicePixelRatio || 1);
    this.width = Math.max(200, this.box.clientWidth);
    this.canvas.width = Math.round(this.width * this.ratio);
    this.canvas.height = Math.round(height * this.ratio);
    this.canvas.style.height = `${height}px`;
    const context = this.canvas.getContext("2d");
    context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    context.font = "12px system-ui, sans-serif";
    context.textBaseline = "middle";
    return context;
  }
}

/** Round steps of an axis, at most so many. */
function ticks(low, high, most, steps = [1, 2, 5]) {
  const least = (high - low) / Math.max(1, most);
  let size = 10 ** Math.floor(Math.log10(least));
  while (!steps.some((step) => step * size >= least)) size *= 10;
  const step = steps.find((one) => one * size >= least) * size;
  const found = [];
  for (let at = Math.ceil(low / step); at * step <= high + step * 1e-9; at++) found.push(at * step);
  return found;
}

const TIME_STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400];

/** Round times of an axis. */
function timeTicks(low, high, most) {
  const least = (high - low) / Math.max(1, most);
  const step = TIME_STEPS.find((one) => one >= least);
  if (least < 1 || step === undefined) {
    if (step === undefined) return ticks(low / 86400, high / 86400, most).map((day) => day * 86400);
    return ticks(low, high, most);
  }
  const found = [];
  for (let at = Math.ceil(low / step); at * step <= high; at++) found.push(at * step);
  return found;
}

/** What is said beside the pointer; one for the page. */
const tip = {
  box: null,
  show(text, x, y) {
    if (!this.box) {
      this.box = element("div", { class: "tip", "aria-hidden": "true" });
      document.body.append(this.box);
    }
    this.box.textContent = text;
    this.box.hidden = false;
    const width = this.box.offsetWidth;
    this.box.style.left = `${Math.max(4, Math.min(x + 12, document.documentElement.clientWidth - width - 8))}px`;
    this.box.style.top = `${y + 16}px`;
  },
  hide() {
    if (this.box) this.box.hidden = true;
  },
};
