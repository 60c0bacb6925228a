// The dialog of settings: system prompt, options of answers, key, colors.

import { at, element } from "./dom.js";
import { OPTIONS } from "./store.js";

export function colors(theme) {
  if (theme) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
}

export class Settings {
  /// `saved(settings, system)` keeps them.
  constructor(saved) {
    this.inputs = Object.fromEntries(Object.entries(OPTIONS).map(([name, option]) => [name, input(option)]));
    at("options").append(...Object.entries(OPTIONS).map(([name, { label, hint }]) =>
      element("label", {}, label, element("small", {}, hint), this.inputs[name])));
    at("settings-cancel").addEventListener("click", () => at("settings").close());
    at("settings-reset").addEventListener("click", () => {
      for (const one of Object.values(this.inputs)) one.value = "";
    });
    at("settings").addEventListener("close", () => colors(this.before.theme));
    at("theme").addEventListener("change", () => colors(at("theme").value));
    at("settings-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.before = this.values();
      saved(this.before, at("system").value);
      at("settings").close();
    });
  }

  /// Shows the server's own options where there is no other.
  usual(params) {
    for (const [name, one] of Object.entries(this.inputs)) {
      const own = params?.[name];
      one.placeholder = typeof own === "number" ? String(Number(own.toPrecision(4))) : "";
    }
    this.inputs.max_tokens.placeholder ||= "as many as fit";
    this.inputs.seed.placeholder ||= "another one each time";
  }

  open(settings, system, focus = "system") {
    this.before = settings;
    at("system").value = system;
    at("system-usual").checked = system !== "" && system === settings.system;
    at("key").value = settings.key;
    at("theme").value = settings.theme;
    for (const [name, one] of Object.entries(this.inputs)) one.value = settings.options[name] ?? "";
    at("settings").showModal();
    at(focus).focus();
  }

  values() {
    const given = Object.entries(this.inputs).filter(([, one]) => one.value !== "");
    const usual = at("system-usual").checked ? at("system").value : this.withoutUsual();
    return {
      key: at("key").value.trim(),
      system: usual,
      theme: at("theme").value,
      options: Object.fromEntries(given.map(([name, one]) => [name, one.valueAsNumber])),
    };
  }

  // The usual system prompt, when the one of this conversation is not to be it.
  withoutUsual() {
    return at("system").value === this.before.system ? "" : this.before.system;
  }
}

function input({ least, most, step }) {
  return element("input", { type: "number", min: least, max: most, step: step < 1 ? "any" : 1, inputMode: "decimal" });
}
