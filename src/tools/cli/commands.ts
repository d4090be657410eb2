/**
 * The commands besides kube-proxy's own command line: `main.ts` runs them, and `--help`, the shell completion and docs/commands.md list
 * them. Each is loaded on demand.
 */
import type { Output } from "./output.ts";
import type { CommandLine } from "./subcommand-options.ts";

export interface Command {
  readonly name: string;
  readonly summary: string;
  /** Whether it queries a running daemon, and so takes `--node` and `--all-nodes` (on-nodes.ts). @default false */
  readonly asksDaemon?: boolean;
  /** @returns runs it with the arguments after its name. @throws UsageError */
  load(): Promise<((argv: readonly string[], output: Output) => Promise<number>) & { readonly line: CommandLine }>;
}

export const COMMANDS: readonly Command[] = [
  {
    name: "render",
    summary: "prints what would be programmed",
    load: async () => (await import("./render.ts")).render,
  },
  {
    name: "explain",
    summary: "explains what a Service, an address, a port or a name in the kernel is on a node, and why",
    load: async () => (await import("./explain.ts")).explain,
  },
  {
    name: "trace",
    summary: "follows a packet through the rules of a node and says what happens to it",
    load: async () => (await import("./trace.ts")).trace,
  },
  {
    name: "diff",
    asksDaemon: true,
    summary: "shows what a change of manifests does, or how a kernel differs from what it should be",
    load: async () => (await import("./diff.ts")).diff,
  },
  {
    name: "prove",
    asksDaemon: true,
    summary: "proves whether rules treat every packet as the Services ask, or as other rules do",
    load: async () => (await import("./prove.ts")).proveCommand,
  },
  {
    name: "status",
    asksDaemon: true,
    summary: "says how a running daemon is doing",
    load: async () => (await import("./status.ts")).status,
  },
  {
    name: "services",
    asksDaemon: true,
    summary: "prints the service table of a running daemon",
    load: async () => (await import("./services.ts")).services,
  },
  {
    name: "flows",
    asksDaemon: true,
    summary: "prints who talks to which Service through this node",
    load: async () => (await import("./flows.ts")).flows,
  },
  {
    name: "monitor",
    asksDaemon: true,
    summary: "prints every sync of a running daemon as it happens: why, what was written, how long it took",
    load: async () => (await import("./monitor.ts")).monitor,
  },
  {
    name: "page",
    asksDaemon: true,
    summary: "opens the page of a running daemon in the browser",
    load: async () => (await import("./page.ts")).page,
  },
  {
    name: "sysdump",
    asksDaemon: true,
    summary: "writes one archive for support, without secrets",
    load: async () => (await import("./sysdump.ts")).sysdump,
  },
  {
    name: "hns-check",
    summary: "reports what HNS on a Windows host is and does, and how fast",
    load: async () => (await import("./hns-check.ts")).hnsCheck,
  },
  {
    name: "help",
    summary: "prints the help of a command, with examples",
    load: async () => (await import("./help.ts")).help,
  },
  {
    name: "completion",
    summary: "prints a script that lets bash, zsh or fish complete commands and flags",
    load: async () => (await import("./completion.ts")).completion,
  },
];

/** The command with this name; undefined for other words. */
export function findCommand(name: string): Command | undefined {
  return COMMANDS.find((command) => command.name === name);
}
