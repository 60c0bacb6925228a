// Nodes of the page. Texts of models, people and files get into it as text nodes alone.

export const at = (id) => document.getElementById(id);

/// An element with properties (a class is `className`; what has a dash or `role` is an attribute) and children.
export function element(name, properties = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key.includes("-") || key === "role") made.setAttribute(key, value);
    else made[key] = value;
  }
  made.append(...children);
  return made;
}

export function button(text, label, onclick) {
  return element("button", { type: "button", "aria-label": label, title: label, onclick }, text);
}

/// Copies a text, and says so on the button.
export async function copy(text, from) {
  const before = from.textContent;
  from.textContent = (await copied(text)) ? "Copied" : "Select and copy by hand";
  setTimeout(() => (from.textContent = before), 1500);
}

async function copied(text) {
  if (navigator.clipboard) {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      return false;
    }
  }
  // Pages of plain HTTP from another machine have no clipboard but this.
  const area = element("textarea", { value: text, className: "hidden" });
  document.body.append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  return done;
}

/// Gives the browser a file to keep.
export function download(name, text) {
  const href = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  element("a", { href, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(href), 60_000);
}
