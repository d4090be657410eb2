/**
 * A ruleset as text, as `nft list ruleset` (1.0.6) prints it; `nft -f` reads it back.
 */
import { durationText, elementLine, expressionText, hookText, ruleText as ruleLine } from "./json-text.ts";
import {
  DYNAMIC_SET_SIZE,
  type NftChain,
  type NftElement,
  type NftFamily,
  type NftRule,
  type NftSet,
} from "./ruleset.ts";
import {
  elementJson,
  fieldJson,
  hookJson,
  keyJson,
  keyTypeName,
  numgen,
  statementJson,
  targetTypeName,
} from "./ruleset-json.ts";
import type { NftTable } from "./ruleset-table.ts";

export function tableText({ family, name, comment, counters, sets, chains }: NftTable): string {
  const blocks = [
    ...counters.map((counter) => block(`counter ${counter}`, ["packets 0 bytes 0"])),
    ...sets.map(({ set, elements }) => setText(set, elements, family)),
    ...chains.map((chain) => chainText(chain, family)),
  ];
  return `table ${family} ${name} {\n\tcomment ${quoted(comment)}\n${blocks.join("\n")}}\n`;
}

function quoted(text: string): string {
  return `"${text}"`;
}

function block(head: string, lines: readonly (string | undefined)[]): string {
  const present = lines.filter((line) => line !== undefined);
  return `\t${head} {\n${present.map((line) => `\t\t${line}\n`).join("")}\t}\n`;
}

function setText(set: NftSet, elements: readonly NftElement[], family: NftFamily): string {
  const { timeoutSeconds, size = DYNAMIC_SET_SIZE, comment } = set;
  const texts = elements.map(elementText);
  return block(`${set.isMap || set.hasTargets === true ? "map" : "set"} ${set.name}`, [
    typesText(set, family),
    ...(timeoutSeconds === undefined
      ? []
      : [`size ${size}`, "flags dynamic,timeout", `timeout ${durationText(timeoutSeconds)}`]),
    set.hasCounters === true ? "counter" : undefined,
    comment === undefined ? undefined : `comment ${quoted(comment)}`,
    elements.length === 0 ? undefined : `elements = { ${texts.join(ELEMENT_SEPARATOR)} }`,
  ]);
}

/** The types by name, or by the expressions that are looked up if a part has no named type. */
function typesText({ key, isMap, hasTargets, slots }: NftSet, family: NftFamily): string {
  const names = key.map((type) => keyTypeName(type, family)).join(" . ");
  if (hasTargets !== true) return `type ${names}${isMap ? " : verdict" : ""}`;
  if (slots === undefined) return `type ${names} : ${targetTypeName(family)}`;
  const fields = { address: "daddr", protocol: "l4proto", port: "dport" } as const;
  const parts = key.map((type) => (type === "slot" ? numgen(slots) : fieldJson(fields[type], family)));
  return `typeof ${expressionText({ concat: parts })} : ${expressionText(keyJson(["daddr", "dport"], family))}`;
}

/** Puts one element on each line, aligned with the first. */
const ELEMENT_SEPARATOR = `,\n\t\t${" ".repeat("elements = { ".length)}`;

/** An element as `nft` lists it: `10.96.0.10 . tcp . 80 : goto service-…`. */
export function elementText(element: NftElement): string {
  return elementLine(elementJson(element));
}

function chainText({ name, hook, comment, rules }: NftChain, family: NftFamily): string {
  return block(`chain ${name}`, [
    comment === undefined ? undefined : `comment ${quoted(comment)}`,
    hook && hookText(hookJson(hook)),
    ...rules.map((rule) => ruleText(rule, family)),
  ]);
}

export function ruleText({ statements, comment }: NftRule, family: NftFamily): string {
  return ruleLine(
    statements.map((statement) => statementJson(statement, family)),
    comment,
  );
}
