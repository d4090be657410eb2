/** `completion`: the words that may follow, and that bash asks for them. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "node:test";
import { MODES } from "../../src/modes/registry.ts";
import { COMMANDS } from "../../src/tools/cli/commands.ts";
import { completion } from "../../src/tools/cli/completion.ts";
import { flows } from "../../src/tools/cli/flows.ts";
import { monitor } from "../../src/tools/cli/monitor.ts";
import { EXIT_BAD_INPUT, EXIT_FAILURE, UsageError } from "../../src/tools/cli/output.ts";
import { services } from "../../src/tools/cli/services.ts";
import { status } from "../../src/tools/cli/status.ts";
import { listedOptions, TEXT_OR_JSON, usageOf } from "../../src/tools/cli/subcommand-options.ts";
import { KUBE_PROXY } from "../../testkit/needs/built-program.ts";
import { runCommand } from "./run-command.ts";
import { runKubeProxy } from "./run-kube-proxy.ts";

async function script(shell: string): Promise<string> {
  const { status, out } = await runCommand(completion, [shell]);
  assert.equal(status, 0);
  return out;
}

/** What bash offers for the last word. */
function offered(bash: string, ...words: readonly string[]): readonly string[] {
  const line = words.map((word) => `'${word}'`).join(" ");
  const program = `${bash}\nCOMP_WORDS=(${line}); COMP_CWORD=${words.length - 1}; _kube_proxy '${KUBE_PROXY}'; printf '%s\\n' "\${COMPREPLY[@]}"`;
  // If its input is a socket, as from Node.js, bash takes itself for a remote shell and reads the user's settings.
  const out = execFileSync("bash", ["--norc", "-c", program], { encoding: "utf8" });
  return out.split("\n").filter((word) => word !== "");
}

/** What may follow these words, the last of which has begun. */
async function wordsAfter(...line: readonly string[]): Promise<readonly string[]> {
  const { status, out } = await runCommand(completion, ["kubectl", ...line]);
  assert.equal(status, 0);
  return out.split("\n").flatMap((word) => (/^(?::\d)?$/.test(word) ? [] : word.replace(/\t.*/, "")));
}

test("bash completes commands, their flags and values", async () => {
  const bash = await script("bash");
  assert.deepEqual(offered(bash, "kube-proxy", "expl"), ["explain"]);
  assert.deepEqual(offered(bash, "kube-proxy", "explain", "x", "-o", "js"), ["json"]);
  assert.deepEqual(offered(bash, "kube-proxy", "diff", "--mode", "=", "n"), ["nftables"]);
  assert.deepEqual([...offered(bash, "kube-proxy", "trace", "--output", "=")].sort(), ["json", "text"]);
});

test("--output has the values that its command takes, and files where it takes a file", async () => {
  const forms: Readonly<Record<string, readonly string[]>> = {
    render: [...new Set(MODES.flatMap(({ renderForms }) => renderForms))],
    explain: TEXT_OR_JSON,
    ...Object.fromEntries(["trace", "diff", "status", "services", "monitor"].map((name) => [name, ["text", "json"]])),
    sysdump: [],
  };
  for (const [command, list] of Object.entries(forms)) {
    for (const typed of [["-o", ""], ["--output", ""], ["--output="]]) {
      const words = await wordsAfter(command, ...typed);
      assert.deepEqual([...words].sort(), [...list].sort(), `${command} ${typed.join(" ")}`);
    }
  }
  assert.ok((await wordsAfter("trace", "--mode=")).includes("ebpf"));
});

test("every command has its flags, and kube-proxy its own", async () => {
  assert.deepEqual(
    await wordsAfter(""),
    COMMANDS.map(({ name }) => name),
  );
  for (const { name, load } of COMMANDS) {
    const expected = listedOptions((await load()).line).map((option) => `--${option.name}`);
    assert.deepEqual(await wordsAfter(name, "--"), [...expected.sort(), "--color"], name);
  }
  for (const line of [["--proxy-"], ["--mode", "nftables", "--proxy-"]]) {
    assert.ok((await wordsAfter(...line)).includes("--proxy-mode"), line.join(" "));
  }
});

test("each shell has a script that asks the program; another shell is refused", async () => {
  for (const shell of ["bash", "zsh", "fish"]) assert.match(await script(shell), / completion kubectl /);
  await assert.rejects(
    runCommand(completion, ["fis"]),
    (error) => error instanceof UsageError && error.hint === "Did you mean fish?",
  );
});

test("a mistyped command is suggested; other words are refused as kube-proxy refuses them", async () => {
  const near = await runKubeProxy(["explian", "shop/web"]);
  assert.equal(near.status, 1);
  assert.equal(near.stderr, 'Error: unknown command "explian" for "kube-proxy"\nDid you mean kube-proxy explain?\n');
  const far = await runKubeProxy(["bananas"]);
  assert.match(far.stderr, /"kube-proxy" does not take any arguments, got \["bananas"\]/);
  assert.equal(far.status, 1);
});

test("a flag that a command does not have ends it with the status that its help names", async () => {
  for (const { name, load } of COMMANDS) {
    const command = await load();
    const { line } = command;
    const badInput = line.throws === true ? EXIT_FAILURE : EXIT_BAD_INPUT;
    const status = await runCommand(command, ["--no-such-flag"]).then(
      (ran) => ran.status,
      (error) => (error instanceof UsageError ? 1 : assert.fail(String(error))), // as main.ts ends
    );
    assert.equal(status, badInput, name);
    const [, statuses = ""] = /^Exit status: (.*)/ms.exec(usageOf(line)) ?? [];
    assert.match(statuses, new RegExp(`\\b${badInput}\\b`), `help of ${name}`);
  }
});

test("options that choose a cluster are refused where no node of it is named", async () => {
  for (const command of [status, services, monitor, flows]) {
    const { status: exit, err } = await runCommand(command, ["--context", "prod"]);
    assert.equal(exit, EXIT_BAD_INPUT);
    assert.match(err, /^Error: --context is only for --node and --all-nodes\n/);
  }
});
