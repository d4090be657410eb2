/**
 * A ruleset as text, as `nft list ruleset` (1.0.6) prints it, and single operations as commands; `nft -f` reads both back.
 */
import { durationText, elementLine, expressionText, hookText, ruleText as ruleLine } from "./json-text.ts";
import type { NftOperation } from "./nftables.ts";
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
    ...chains.map(({ rules, ...head }) =>
      block(`chain ${head.name}`, [...headOf(head), ...rules.map((rule) => ruleText(rule, family))]),
    ),
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
  const texts = elements.map(elementText);
  return block(`${setWord(set)} ${set.name}`, [
    ...propertiesOf(set, family),
    elements.length === 0 ? undefined : `elements = { ${texts.join(ELEMENT_SEPARATOR)} }`,
  ]);
}

function setWord({ isMap, hasTargets }: NftSet): string {
  return isMap || hasTargets === true ? "map" : "set";
}

function propertiesOf(set: NftSet, family: NftFamily): (string | undefined)[] {
  const { timeoutSeconds, size = DYNAMIC_SET_SIZE, comment } = set;
  return [
    typesText(set, family),
    ...(timeoutSeconds === undefined
      ? []
      : [`size ${size}`, "flags dynamic,timeout", `timeout ${durationText(timeoutSeconds)}`]),
    set.hasCounters === true ? "counter" : undefined,
    comment === undefined ? undefined : `comment ${quoted(comment)}`,
  ];
}

/** The types by name, or by the expressions that are looked up if a part has no named type. */
function typesText({ key, isMap, hasTargets, slots }: NftSet, family: NftFamily): string {
  const names = key.map((type) => keyTypeName(type, family)).join(" . ");
  if (slots === undefined)
    return `type ${names}${isMap ? " : verdict" : hasTargets === true ? ` : ${targetTypeName(family)}` : ""}`;
  const fields = { address: "daddr", protocol: "l4proto", port: "dport" } as const;
  const parts = key.map((type) => (type === "slot" ? numgen(slots) : fieldJson(fields[type], family)));
  const value = isMap ? "verdict" : expressionText(keyJson(["daddr", "dport"], family));
  return `typeof ${expressionText({ concat: parts })} : ${value}`;
}

/** Puts one element on each line, aligned with the first. */
const ELEMENT_SEPARATOR = `,\n\t\t${" ".repeat("elements = { ".length)}`;

/** An element as `nft` lists it: `10.96.0.10 . tcp . 80 : goto service-…`. */
export function elementText(element: NftElement): string {
  return elementLine(elementJson(element));
}

function headOf({ hook, comment }: Omit<NftChain, "rules">): (string | undefined)[] {
  return [comment === undefined ? undefined : `comment ${quoted(comment)}`, hook && hookText(hookJson(hook))];
}

export function ruleText({ statements, comment }: NftRule, family: NftFamily): string {
  return ruleLine(
    statements.map((statement) => statementJson(statement, family)),
    comment,
  );
}

/** An operation as a command of `nft -f`: `add element ip kube-proxy service-ips { 10.96.0.10 . tcp . 80 : goto … }`. */
export function operationText(operation: NftOperation, family: NftFamily, table: string): string {
  // An operation that deletes a set does not say which it is; nft takes either word for both.
  const [verb, noun] = operation.kind.replace("elements", "element").split("-");
  const command = (name: string, properties: readonly (string | undefined)[] = [], what = noun): string =>
    `${verb} ${what} ${family} ${table}${name === "" ? "" : ` ${name}`}${braced(properties)}`;
  const elements = (name: string, texts: readonly string[]): string => `${command(name)} { ${texts.join(", ")} }`;
  switch (operation.kind) {
    case "add-table":
      return command("", [
        `comment ${quoted(operation.comment)}`,
        operation.isDormant === true ? "flags dormant" : undefined,
      ]);
    case "delete-table":
      return command("");
    case "add-chain":
      return command(operation.chain.name, headOf(operation.chain));
    case "flush-chain":
    case "delete-chain":
      return command(operation.chain);
    case "add-rule":
      return `${command(operation.chain)} ${ruleText(operation.rule, family)}`;
    case "add-counter":
    case "delete-counter":
      return command(operation.counter);
    case "add-set":
      return command(operation.set.name, propertiesOf(operation.set, family), setWord(operation.set));
    case "flush-set":
      return command(operation.set.name, [], setWord(operation.set));
    case "delete-set":
      return command(operation.set);
    case "add-elements":
      return elements(operation.set.name, operation.elements.map(elementText));
    case "delete-elements":
      return elements(
        operation.set.name,
        operation.keys.map((key) => elementText({ key })),
      );
  }
}

/** Properties in braces, on one line. */
function braced(properties: readonly (string | undefined)[]): string {
  const present = properties.filter((property) => property !== undefined);
  return present.length === 0 ? "" : ` { ${present.map((property) => `${property.replace(/;$/, "")}; `).join("")}}`;
}
