/**
 * Renders a Helm chart that keeps to a small part of Go's templates: fields, parentheses, pipes, `if`/`else`, `with`, and
 * the functions listed below, `.Files.Get` among them. Anything else throws, so that a chart cannot come to depend on what is not understood here.
 * There is no Helm in Debian or on npm; the chart was compared with Go's own text/template by hand.
 */
import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { parse, stringify } from "yaml";
import { schemaFaults } from "./json-schema.ts";

/** What a chart refuses with `fail` or `required`. */
export class ChartRefusal extends Error {}

type Node =
  | { readonly kind: "text"; readonly text: string }
  | { readonly kind: "value"; readonly pipeline: Pipeline }
  | {
      readonly kind: "if" | "with";
      readonly pipeline: Pipeline;
      readonly then: readonly Node[];
      readonly otherwise: readonly Node[];
    };

/** Commands from left to right; each gets the result of the one before as its last argument. */
type Pipeline = readonly Command[];
type Command = readonly Operand[];
type Operand =
  | { readonly kind: "literal"; readonly value: unknown }
  | { readonly kind: "field"; readonly isRoot: boolean; readonly path: readonly string[] }
  | { readonly kind: "function"; readonly name: string }
  | { readonly kind: "pipeline"; readonly pipeline: Pipeline };

interface Scope {
  readonly root: unknown;
  readonly dot: unknown;
  readonly include: (name: string, dot: unknown) => string;
  /** The text of a file of the chart. */
  readonly file: (path: string) => string;
}

function isTrue(value: unknown): boolean {
  if (Array.isArray(value)) return value.length > 0;
  if (typeof value === "object" && value !== null) return Object.keys(value).length > 0;
  return Boolean(value);
}

const toYaml = (value: unknown) => stringify(value, { lineWidth: 0, sortMapEntries: true, indentSeq: false }).trimEnd();

/** What Go prints for a value. */
function print(value: unknown): string {
  if (value === null || value === undefined) throw new Error("a template prints nothing: the value is not set");
  if (typeof value === "object") throw new Error("a template prints an object: use toYaml");
  return String(value);
}

const FUNCTIONS: Readonly<Record<string, (args: readonly unknown[], scope: Scope) => unknown>> = {
  toYaml: ([value]) => toYaml(value),
  nindent: ([width, text]) => `\n${print(text).replaceAll(/^/gm, " ".repeat(Number(width)))}`,
  default: ([fallback, value]) => (isTrue(value) ? value : fallback),
  required: ([message, value]) => (value === "" || value === undefined || value === null ? refuse(message) : value),
  fail: ([message]) => refuse(message),
  print: (args) => args.map(print).join(""),
  replace: ([from, to, text]) => print(text).replaceAll(print(from), print(to)),
  include: ([name, dot], scope) => scope.include(print(name), dot),
  sha256sum: ([text]) => createHash("sha256").update(print(text)).digest("hex"),
  or: (args) => args.find(isTrue) ?? args.at(-1),
  not: ([value]) => !isTrue(value),
  eq: ([one, other]) => one === other,
};

function refuse(message: unknown): never {
  throw new ChartRefusal(print(message));
}

const TOKEN = /\s*(?:"((?:[^"\\]|\\.)*)"|(\d+)|(\$?(?:\.[A-Za-z_]\w*)+|\$|\.)|([A-Za-z]\w*)|([()|]))\s*/y;

/** Reads what stands between `{{` and `}}`. */
function parsePipeline(source: string): Pipeline {
  TOKEN.lastIndex = 0;
  const stack: Operand[][][] = [[[]]];
  while (TOKEN.lastIndex < source.length) {
    const at = TOKEN.lastIndex;
    const match = TOKEN.exec(source);
    if (match === null) throw new Error(`not understood: {{ ${source} }} at "${source.slice(at)}"`);
    const [, text, number, field, name, mark] = match;
    const commands = stack.at(-1) ?? [];
    if (mark === "(") stack.push([[]]);
    else if (mark === "|") commands.push([]);
    else if (mark === ")") {
      stack.pop();
      stack.at(-1)?.at(-1)?.push({ kind: "pipeline", pipeline: commands });
    } else if (text !== undefined) commands.at(-1)?.push({ kind: "literal", value: JSON.parse(`"${text}"`) });
    else if (number !== undefined) commands.at(-1)?.push({ kind: "literal", value: Number(number) });
    else if (name !== undefined) commands.at(-1)?.push({ kind: "function", name });
    else if (field !== undefined) {
      const path = field.replace("$", "").split(".").filter(Boolean);
      commands.at(-1)?.push({ kind: "field", isRoot: field.startsWith("$"), path });
    }
  }
  const [pipeline] = stack;
  if (stack.length !== 1 || pipeline === undefined) throw new Error(`unbalanced: {{ ${source} }}`);
  return pipeline;
}

function evaluate(pipeline: Pipeline, scope: Scope): unknown {
  return pipeline.reduce<unknown>((piped, [first, ...rest], index) => {
    const args = rest.map((operand) => operandValue(operand, scope));
    if (first?.kind === "function") {
      const called = FUNCTIONS[first.name];
      if (called === undefined) throw new Error(`unknown function ${first.name}`);
      return called(index === 0 ? args : [...args, piped], scope);
    }
    if (first?.kind === "field" && first.path.join(".") === "Files.Get" && index === 0)
      return scope.file(print(args[0]));
    if (first === undefined || args.length > 0 || index > 0) throw new Error("a value is called like a function");
    return operandValue(first, scope);
  }, undefined);
}

function operandValue(operand: Operand, scope: Scope): unknown {
  switch (operand.kind) {
    case "literal":
      return operand.value;
    case "pipeline":
      return evaluate(operand.pipeline, scope);
    case "function":
      return evaluate([[operand]], scope);
    case "field": {
      const field = (value: unknown, name: string) => Object.entries(value ?? {}).find(([key]) => key === name)?.[1];
      return operand.path.reduce<unknown>(field, operand.isRoot ? scope.root : scope.dot);
    }
  }
}

/** A block that is being read; `nodes` is the part of it that comes next. */
interface OpenBlock {
  nodes: Node[];
  readonly otherwise: Node[];
}

/** Cuts a template into its nodes, nested by `if` and `with`. */
function parseTemplate(source: string): readonly Node[] {
  const root: OpenBlock = { nodes: [], otherwise: [] };
  const open = [root];
  // A dash eats the white space on its side.
  for (const part of source
    .replaceAll(/\s*\{\{-/g, "{{")
    .replaceAll(/-\}\}\s*/g, "}}")
    .split(/(\{\{.*?\}\})/s)) {
    const block = open.at(-1);
    if (block === undefined) throw new Error("{{ end }} without a beginning");
    const inside = /^\{\{\s*(.*?)\s*\}\}$/s.exec(part)?.[1];
    const [word = "", ...rest] = inside?.split(" ") ?? [];
    if (inside === undefined) block.nodes.push({ kind: "text", text: part });
    else if (word === "if" || word === "with") {
      const then: Node[] = [];
      const otherwise: Node[] = [];
      block.nodes.push({ kind: word, pipeline: parsePipeline(rest.join(" ")), then, otherwise });
      open.push({ nodes: then, otherwise });
    } else if (inside === "else") block.nodes = block.otherwise;
    else if (inside === "end") open.pop();
    else block.nodes.push({ kind: "value", pipeline: parsePipeline(inside) });
  }
  if (open.length !== 1) throw new Error("{{ end }} is missing");
  return root.nodes;
}

function render(nodes: readonly Node[], scope: Scope): string {
  const pieces = nodes.map((node) => {
    if (node.kind === "text") return node.text;
    const value = evaluate(node.pipeline, scope);
    if (node.kind === "value") return print(value);
    if (!isTrue(value)) return render(node.otherwise, scope);
    return render(node.then, node.kind === "with" ? { ...scope, dot: value } : scope);
  });
  return pieces.join("");
}

/** As Helm merges: maps key by key, everything else replaced. */
function merge(base: unknown, over: unknown): unknown {
  const isMap = (value: unknown): value is object =>
    typeof value === "object" && value !== null && !Array.isArray(value);
  if (!isMap(base) || !isMap(over)) return over === undefined ? base : over;
  const keys = new Set([...Object.keys(base), ...Object.keys(over)]);
  const get = (map: object, key: string): unknown => Object.entries(map).find(([name]) => name === key)?.[1];
  return Object.fromEntries([...keys].map((key) => [key, merge(get(base, key), get(over, key))]));
}

/**
 * Renders every template of a chart.
 *
 * @param values what the user sets, over the chart's own values.
 * @returns the text of each template by its file name. @throws ChartRefusal when the chart refuses the values.
 */
export function renderChart(folder: string, values: unknown): ReadonlyMap<string, string> {
  const chart: { readonly name: string; readonly appVersion: string } = parse(
    readFileSync(join(folder, "Chart.yaml"), "utf8"),
  );
  const basePath = `${chart.name}/templates`;
  const merged = merge(parse(readFileSync(join(folder, "values.yaml"), "utf8")), values);
  const faults = schemaFaults(JSON.parse(readFileSync(join(folder, "values.schema.json"), "utf8")), merged);
  if (faults.length > 0)
    throw new ChartRefusal(`values don't meet the specifications of the schema: ${faults.join("; ")}`);
  const root = {
    Values: merged,
    Chart: { Name: chart.name, AppVersion: chart.appVersion },
    Template: { BasePath: basePath },
  };
  const templates = new Map(
    readdirSync(join(folder, "templates")).map((name) => [
      name,
      parseTemplate(readFileSync(join(folder, "templates", name), "utf8")),
    ]),
  );
  const file = (path: string): string => readFileSync(join(folder, path), "utf8");
  const include = (name: string, dot: unknown): string => {
    const template = templates.get(name.slice(basePath.length + 1));
    if (template === undefined) throw new Error(`no template ${name}`);
    return render(template, { root, dot, include, file });
  };
  return new Map([...templates.keys()].map((name) => [name, include(`${basePath}/${name}`, root)]));
}
