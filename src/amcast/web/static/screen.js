// Light or dark: what the system says, until somebody chooses; on paper light, at the width of a page and without what can
// only be clicked. Canvases are told when it changes; before a page is printed they have to draw at once.

const ORDER = ["auto", "light", "dark"];
const listeners = [];

function apply(theme, isPrinting = false) {
  const { dataset } = document.documentElement;
  if (theme === "auto") delete dataset.theme; else dataset.theme = theme;
  if (isPrinting) dataset.printing = ""; else delete dataset.printing;
  for (const listener of listeners) listener(isPrinting);
}

export function onTheme(listener) { listeners.push(listener); }

export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

export function themeButton(button) {
  let theme = localStorage.getItem("theme") ?? "auto";
  if (!ORDER.includes(theme)) theme = "auto";
  const show = () => { button.textContent = `Theme: ${theme}`; apply(theme); };
  button.addEventListener("click", () => {
    theme = ORDER[(ORDER.indexOf(theme) + 1) % ORDER.length];
    localStorage.setItem("theme", theme);
    show();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    if (!("printing" in document.documentElement.dataset)) show();
  });
  addEventListener("beforeprint", () => apply("light", true));
  addEventListener("afterprint", show);
  show();
}

// An element with text and attributes; what comes from a trace is only ever text.
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "class") made.className = value;
    else if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value === true) made.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

// A canvas as sharp as the screen: its context, with the size in CSS pixels.
export function fitted(canvas) {
  const ratio = Math.min(2, devicePixelRatio || 1), width = canvas.clientWidth, height = canvas.clientHeight;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return { context, width, height };
}
