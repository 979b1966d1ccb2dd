"use strict";
/* What moves on a page: theme, copying, tooltips, filters, sliders. Text from outside is only ever set as text. */
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const make = (tag, kind, text) => {
    const element = document.createElement(tag);
    element.className = kind;
    element.textContent = text;
    return element;
  };

  /* Theme: the system's until the button is pressed. */
  const themed = () => document.documentElement.dataset.theme
    || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  const theme = document.getElementById("theme");
  const other = () => (themed() === "dark" ? "light" : "dark");
  const label = () => { theme.textContent = other() === "dark" ? "☾ dark" : "☀ light"; };
  theme.hidden = false;
  theme.addEventListener("click", () => { document.documentElement.dataset.theme = other(); label(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", label);
  label();

  /* Tables as text. */
  const SIGNS = {{ latex | tojson }};
  const latex = (text) => [...text].map((sign) => SIGNS[sign] ?? sign).join("");
  const quoted = (text) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  const cells = (table) => [...table.rows].map((row) =>
    [...row.cells].map((cell) => cell.textContent.replace(/\s+/g, " ").trim()));
  const columns = (table) => [...table.rows[0].cells]
    .map((cell) => (getComputedStyle(cell).textAlign === "left" ? "l" : "r")).join("");
  const FORMATS = {
    Markdown: ([head, ...rows]) => [head, head.map(() => "---"), ...rows]
      .map((row) => `| ${row.map((text) => text.replace(/[\\|<*`]/g, "\\$&")).join(" | ")} |\n`).join(""),
    LaTeX: ([head, ...rows], columns) => {
      const line = (row) => `${row.map(latex).join(" & ")} \\\\`;
      return [`\\begin{tabular}{${columns}}`, "\\toprule", line(head), "\\midrule",
        ...rows.map(line), "\\bottomrule", "\\end{tabular}", ""].join("\n");
    },
    CSV: (rows) => rows.map((row) => `${row.map((text) => quoted(text.replaceAll("−", "-"))).join(",")}\r\n`).join(""),
  };
  const byHand = (text) => { /* where a browser has no clipboard for files from the disk */
    const area = make("textarea", "", text);
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  };
  const copy = async (text) => {
    try { await navigator.clipboard.writeText(text); } catch { byHand(text); }
  };
  const copier = (name, text) => {
    const button = make("button", "small", name);
    button.type = "button";
    button.addEventListener("click", async () => {
      await copy(text());
      button.textContent = "copied";
      setTimeout(() => { button.textContent = name; }, 1200);
    });
    return button;
  };
  const bar = (...buttons) => {
    const row = make("p", "copies", "Copy as ");
    row.append(...buttons);
    return row;
  };
  for (const table of all("table")) {
    const buttons = Object.entries(FORMATS).map(([name, made]) => copier(name, () => made(cells(table), columns(table))));
    (table.closest(".scroll") || table).after(bar(...buttons));
  }
  for (const text of all("pre.copy")) text.after(bar(copier("text", () => text.textContent)));

  /* Tooltips: the nearest point to the pointer, or the next one by the arrow keys. */
  const tip = make("div", "tip", "");
  tip.setAttribute("role", "status");
  tip.hidden = true;
  document.body.append(tip);
  let lit = null;
  const hide = () => { tip.hidden = true; lit?.classList.remove("on"); };
  const show = (point) => {
    hide();
    lit = point.mark || null;
    lit?.classList.add("on");
    tip.textContent = point.text;
    tip.hidden = false;
    const left = Math.min(point.x - tip.offsetWidth / 2, document.documentElement.clientWidth - tip.offsetWidth - 8);
    tip.style.left = `${Math.max(8, left)}px`;
    tip.style.top = `${point.y - tip.offsetHeight < 16 ? point.y + 16 : point.y - tip.offsetHeight - 12}px`;
  };
  const marks = (svg) => all("[data-tip]", svg).map((mark) => {
    const box = mark.getBoundingClientRect();
    return { mark, text: mark.dataset.tip, x: box.x + box.width / 2, y: box.y + box.height / 2 };
  });
  const fields = (image) => {
    const [columns, rows, values, unit, marked] = JSON.parse(image.dataset.cells);
    const box = image.getBoundingClientRect();
    return rows.flatMap((row, down) => columns.map((column, across) => {
      const value = values[down][across];
      const said = unit + value.replace("!", "") + (value.endsWith("!") ? marked : "");
      return { text: `${row ? `${row}, ` : ""}${column}: ${said}`, x: box.x + (across + 0.5) * box.width / columns.length,
        y: box.y + (down + 0.5) * box.height / rows.length };
    }));
  };
  const REACH = 60;
  for (const svg of all("svg.chart")) {
    const image = svg.querySelector("[data-cells]");
    if (!image && !svg.querySelector("[data-tip]")) continue;
    const points = () => (image ? fields(image) : marks(svg));
    const wide = image ? JSON.parse(image.dataset.cells)[0].length : 1;
    let at = -1;
    const point = (event) => {
      const apart = ({ x, y }) => Math.hypot(x - event.clientX, y - event.clientY);
      const found = points(), on = found.find(({ mark }) => mark && mark === event.target); /* bars are long */
      const near = on || found.reduce((best, one) => (best && apart(best) <= apart(one) ? best : one), null);
      if (near && (on || apart(near) < REACH)) show(near); else hide();
    };
    svg.addEventListener("pointermove", point);
    svg.addEventListener("pointerdown", point);
    svg.addEventListener("pointerleave", (event) => { if (event.pointerType !== "touch") hide(); });
    svg.addEventListener("blur", hide);
    svg.setAttribute("tabindex", "0");
    svg.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: wide, ArrowUp: -wide }[event.key];
      if (event.key === "Escape") hide();
      if (!step) return;
      event.preventDefault();
      const found = points();
      at = at < 0 ? 0 : (at + step + found.length) % found.length;
      show(found[at]);
    });
  }
  addEventListener("scroll", hide, { passive: true });

  /* Filters: a card stays where it has the chosen word of every filter; of many the first ones, until all are asked for. */
  const FIRST = 24;
  for (const filters of all("[data-filters]")) {
    const cards = all("li", document.getElementById(filters.dataset.filters));
    const chosen = all("select", filters);
    const more = make("button", "small", "");
    more.type = "button";
    filters.append(more);
    const apply = (whole) => {
      const fits = cards.filter((card) =>
        chosen.every((one) => !one.value || card.dataset[one.name].split(" ").includes(one.value)));
      const shown = new Set(whole ? fits : fits.slice(0, FIRST));
      for (const card of cards) card.hidden = !shown.has(card);
      filters.querySelector("output").textContent = `${shown.size} of ${cards.length} shown`;
      more.textContent = `show all ${fits.length}`;
      more.hidden = shown.size === fits.length;
    };
    more.addEventListener("click", () => apply(true));
    for (const one of chosen) one.addEventListener("change", () => apply(false));
    filters.hidden = false;
    apply(false);
  }

  /* Sliders: an image over its genes; the strip of the gene that is moved is shown, the others rest. */
  for (const card of all(".sweep")) {
    const sliders = all("input", card), strips = all(".strip", card), said = all("output", card);
    const move = (slider) => {
      const at = Number(slider.value);
      const answers = JSON.parse(slider.dataset.answers);
      strips.forEach((strip, which) => { strip.hidden = which !== sliders.indexOf(slider); });
      const strip = strips[sliders.indexOf(slider)];
      strip.style.transform = `translateX(-${100 * at / answers[0].length}%)`;
      card.querySelector(".how").textContent = JSON.parse(slider.dataset.said)[at];
      said.forEach((output, which) => {
        const [text, right] = answers[which][at];
        output.textContent = text;
        output.classList.toggle("guess", !right);
      });
    };
    for (const slider of sliders) {
      slider.addEventListener("input", () => {
        for (const one of sliders) if (one !== slider) one.value = one.dataset.rest;
        move(slider);
      });
    }
    card.querySelector(".genes").hidden = false;
    if (sliders.length) move(sliders[0]);
  }
})();
