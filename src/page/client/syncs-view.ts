/** The timeline of syncs, newest first: why each ran, what it wrote, how long its parts took. */
import type { CauseWords } from "../../daemon/sync-words.ts";
import type { ToldSync } from "../answers.ts";
import { badge, el, itemsOf, labelled, msText, plain, timeText } from "./dom.ts";
import type { View } from "./state.ts";

const SHOWN = 100;
export const syncsView: View = (main, _query, state) => {
  const list = el("ol", { class: "syncs" });
  const pause = el("input", { type: "checkbox", id: "pause", change: () => show() });
  const count = el("p", { class: "count" });
  const only = el("select", { id: "kind", change: () => show() });
  only.append(el("option", { value: "all" }, "all syncs"), el("option", { value: "trouble" }, "repairs and refusals"));
  const parts = ["waited", "model", "rules", "kernel", "after"];
  main.append(
    el("h1", {}, "Syncs"),
    el(
      "p",
      { class: "legend" },
      parts.map((part) => el("span", {}, [el("i", { class: part }), part])),
    ),
    el("div", { class: "bar" }, [
      ...labelled("Show", only),
      el("span", { class: "check" }, labelled("pause", pause).toReversed()),
    ]),
    count,
    list,
  );
  // Entries never change, so their elements stay, and with them the reader's place and selection.
  const items = new Map<string, HTMLElement>();

  function show(): void {
    const { known } = state;
    if (known === undefined || (pause.checked && list.childElementCount > 0 && document.activeElement !== only)) return;
    const wanted = known.syncs.filter((sync) => only.value === "all" || isTrouble(sync)).slice(0, SHOWN);
    count.textContent = wanted.length === 0 ? "None yet." : `The last ${wanted.length} of ${known.answer.lastSync}`;
    const kept = new Set<string>();
    for (const [index, sync] of wanted.entries()) {
      // A restarted daemon counts from 1.
      const key = `${known.answer.startedMs} ${sync.number}`;
      kept.add(key);
      let item = items.get(key);
      if (item === undefined) {
        item = itemOf(sync);
        items.set(key, item);
      }
      if (list.children[index] !== item) list.insertBefore(item, list.children[index] ?? null);
    }
    for (const [key, item] of items) {
      if (kept.has(key)) continue;
      item.remove();
      items.delete(key);
    }
  }
  show();
  return state.onChange(show);
};

function isTrouble({ result, causes }: ToldSync): boolean {
  return result !== "done" || causes.some(({ kind }) => kind === "repair");
}

function itemOf(sync: ToldSync): HTMLElement {
  const { family, endedMs, causes, furtherCauses, result, failures, furtherFailures, words } = sync;
  const time = new Date(endedMs);
  const isRepair = causes.some(({ kind }) => kind === "repair");
  const refusals = failures.map(({ subject, reason }) => `${subject}: ${reason}`);
  return el("li", { class: result === "done" ? (isRepair ? "repair" : "") : "trouble" }, [
    el("p", { class: "when" }, [
      el("time", { datetime: time.toISOString() }, timeText(endedMs)),
      ` ${family} `,
      result !== "done" ? badge("bad", result) : isRepair && badge("warn", "repaired"),
    ]),
    el("div", {}, [
      el("ul", { class: "causes" }, [
        ...words.causes.map((cause) => el("li", {}, causeParts(cause))),
        ...furtherItems(furtherCauses),
      ]),
      el("p", { class: "wrote" }, plain(`${sync.isFullSync ? "Full sync: " : ""}${words.written}`)),
      refusals.length > 0 && el("ul", { class: "failures" }, [...itemsOf(refusals), ...furtherItems(furtherFailures)]),
    ]),
    stagesPart(sync),
  ]);
}

const furtherItems = (count: number) => itemsOf(count > 0 ? [`and ${count} more`] : []);

function causeParts({ before, object, service, after }: CauseWords): (Node | string)[] {
  if (object === "") return [plain(before)];
  const search = new URLSearchParams({ search: service === "" ? object : service });
  return [before, el("a", { href: `#/services?${search}` }, plain(object)), plain(after)];
}

/** The length of the bar is the logarithm of the time, so that a millisecond and a minute are both visible. */
function stagesPart({ stages: { waiting, model, rules, kernel, after } }: ToldSync): HTMLElement {
  const parts = [
    ["waited", waiting],
    ["model", model],
    ["rules", rules - (kernel ?? 0)],
    ["kernel", kernel ?? 0],
    ["after", after],
  ] as const;
  const total = waiting + model + rules + after;
  const width = Math.min(100, 12 + 18 * Math.max(0, Math.log10(Math.max(total, 0.1)) + 1));
  const bar = el("span", { class: "bar-parts", "aria-hidden": "true" });
  bar.style.width = `${width}%`;
  for (const [name, value] of parts) {
    if (value <= 0) continue;
    const part = el("i", { class: name });
    part.style.flexGrow = `${value}`;
    bar.append(part);
  }
  const text = parts
    .filter(([, value]) => value >= 0.005)
    .map(([name, value]) => `${name} ${msText(value)}`)
    .join(", ");
  const times = el("span", {}, [el("b", {}, `${msText(total)} ms`), text === "" ? "" : ` ${text}`]);
  return el("p", { class: "stages" }, [bar, times]);
}
