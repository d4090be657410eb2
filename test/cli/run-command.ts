/** Runs a command's function in this process and captures its output. */
import { readdirSync, readFileSync } from "node:fs";
import { Readable } from "node:stream";
import { parseAllDocuments } from "yaml";
import type { Output } from "../../src/tools/cli/output.ts";

/** The result of a command. */
export interface Ran {
  readonly status: number;
  readonly out: string;
  readonly err: string;
}

/** As `command` of subcommand-options.ts makes it. */
export type Command = (argv: readonly string[], output: Output, input: NodeJS.ReadableStream) => Promise<number>;

/** @param input what the command reads from standard input. */
export async function runCommand(command: Command, args: readonly string[], input = ""): Promise<Ran> {
  let out = "";
  let err = "";
  const output: Output = {
    out: (text) => {
      out += text;
    },
    err: (text) => {
      err += text;
    },
  };
  const status = await command(args, output, Readable.from([input]));
  return { status, out, err };
}

const EXAMPLES = new URL("../../examples/", import.meta.url);

let examples: string | undefined;

/** The manifests of `examples/` as one JSON text for `-f -`, which is much faster to read than YAML. */
export function examplesAsJson(): string {
  examples ??= readExamples();
  return examples;
}

function readExamples(): string {
  const files = readdirSync(EXAMPLES).sort();
  const items = files.flatMap((file) =>
    parseAllDocuments(readFileSync(new URL(file, EXAMPLES), "utf8")).map((document): unknown => document.toJS()),
  );
  return JSON.stringify({ apiVersion: "v1", kind: "List", items });
}
