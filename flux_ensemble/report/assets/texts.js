// Numbers, durations and job ids as people read them, and elements made of text.

const BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";

/** A duration in seconds in the units that people use. */
function seconds(value) {
  if (value === null || Number.isNaN(value)) return "–";
  if (value < 0) return "-" + seconds(-value);
  if (value < 1) return value ? `${+(1000 * value).toPrecision(3)}ms` : "0s";
  if (value < 59.5) return `${+value.toPrecision(3)}s`;
  let left = Math.round(value);
  const parts = [];
  for (const [size, unit] of [[86400, "d"], [3600, "h"], [60, "m"], [1, "s"]]) {
    const number = Math.floor(left / size);
    left -= number * size;
    if (number || parts.length) parts.push(number ? `${number}${unit}` : "");
  }
  return parts.slice(0, 2).filter(Boolean).join(" ");
}

/** A value of a parameter or a memo. */
function shownValue(value) {
  if (value === null || value === undefined) return "";
  return typeof value === "number" && !Number.isInteger(value) ? `${+value.toPrecision(6)}` : `${value}`;
}

/** A key of memos with its unit, if it has one; other names as they are. */
function labelOf(run, key) {
  return Object.hasOwn(run.about.labels, key) ? run.about.labels[key] : key;
}

function counted(number, noun) {
  return `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
}

/** A job id of Flux in the form f58 (RFC 19). */
function f58(id) {
  let text = "";
  for (let left = BigInt(id); left > 0n; left /= 58n) text = BASE58[Number(left % 58n)] + text;
  return `ƒ${text || "1"}`;
}

/** A job as people see it: its id, after its member where there are some. */
function jobName(run, row) {
  const { id, member } = run.jobs.columns;
  const where = member ? member.get(row) : null;
  return `${where === null ? "" : `${where}:`}${run.label(id.array[row])}`;
}

/** An element with attributes and children; a text is never markup. */
function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value === true) made.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

/** A choice with its label; `changed` gets the value. */
function choice(label, options, changed) {
  const select = element("select", { onchange: () => changed(select.value) });
  for (const [value, text] of options) select.append(element("option", { value }, text));
  return { box: element("label", { class: "choice" }, label, " ", select), select };
}

/** What `Files.of` has made of the path of a file: a link, or the path of one that is not there. */
function fileOf(file) {
  if (!file) return "";
  const link = /^(\.\.?\/|file:)/.test(file);
  let text = link ? decoded(file.replace(/^(\.\/|file:\/\/)/, "")) : file;
  if (text.length > 40) text = `…${text.slice(-39)}`;
  return link ? element("a", { href: file, rel: "noreferrer" }, text) : text;
}

/** A path from a link; one that is not Unicode stays as it is. */
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function button(text, attributes) {
  return element("button", { type: "button", ...attributes }, text);
}
