/**
 * The commands besides kube-proxy's own command line: `main.ts` runs them, and `--help`, the shell completion and docs/commands.md list
 * them. Each is loaded on demand.
 */
import { EXIT_FAILURE, type Output } from "./output.ts";
import type { CommandLine } from "./subcommand-options.ts";

export interface Command {
  readonly name: string;
  readonly summary: string;
  /** Whether it queries a running daemon, and so takes `--node` and `--all-nodes` (on-nodes.ts). @default false */
  readonly asksDaemon?: boolean;
  /** The exit status for an unusable command line, if 1 is not an answer. @default EXIT_BAD_INPUT */
  readonly badInput?: typeof EXIT_FAILURE;
  load(): Promise<{
    /** @param argv the arguments after its name. @returns the exit status. @throws UsageError */
    run(argv: readonly string[], output: Output): Promise<number>;
    readonly line: CommandLine;
  }>;
}

export const COMMANDS: readonly Command[] = [
  {
    name: "render",
    badInput: EXIT_FAILURE,
    summary: "prints what would be programmed",
    load: () => import("./render.ts").then((own) => ({ run: own.render, line: own.RENDER })),
  },
  {
    name: "explain",
    summary: "explains what a Service, an address, a port or a name in the kernel is on a node, and why",
    load: () => import("./explain.ts").then((own) => ({ run: own.explain, line: own.EXPLAIN })),
  },
  {
    name: "trace",
    summary: "follows a packet through the rules of a node and says what happens to it",
    load: () => import("./trace.ts").then((own) => ({ run: own.trace, line: own.TRACE })),
  },
  {
    name: "diff",
    asksDaemon: true,
    summary: "shows what a change of manifests does, or how a kernel differs from what it should be",
    load: () => import("./diff.ts").then((own) => ({ run: own.diff, line: own.DIFF })),
  },
  {
    name: "prove",
    asksDaemon: true,
    summary: "proves whether rules treat every packet as the Services ask, or as other rules do",
    load: () => import("./prove.ts").then((own) => ({ run: own.proveCommand, line: own.PROVE })),
  },
  {
    name: "status",
    asksDaemon: true,
    summary: "says how a running daemon is doing",
    load: () => import("./status.ts").then((own) => ({ run: own.status, line: own.STATUS })),
  },
  {
    name: "services",
    asksDaemon: true,
    summary: "prints the service table of a running daemon",
    load: () => import("./services.ts").then((own) => ({ run: own.services, line: own.SERVICES })),
  },
  {
    name: "flows",
    asksDaemon: true,
    summary: "prints who talks to which Service through this node",
    load: () => import("./flows.ts").then((own) => ({ run: own.flows, line: own.FLOWS })),
  },
  {
    name: "monitor",
    asksDaemon: true,
    summary: "prints every sync of a running daemon as it happens: why, what was written, how long it took",
    load: () => import("./monitor.ts").then((own) => ({ run: own.monitor, line: own.MONITOR })),
  },
  {
    name: "page",
    asksDaemon: true,
    summary: "opens the page of a running daemon in the browser",
    load: () => import("./page.ts").then((own) => ({ run: own.page, line: own.PAGE })),
  },
  {
    name: "sysdump",
    asksDaemon: true,
    summary: "writes one archive for support, without secrets",
    load: () => import("./sysdump.ts").then((own) => ({ run: own.sysdump, line: own.SYSDUMP })),
  },
  {
    name: "hns-check",
    summary: "reports what HNS on a Windows host is and does, and how fast",
    load: () => import("./hns-check.ts").then((own) => ({ run: own.hnsCheck, line: own.HNS_CHECK })),
  },
  {
    name: "help",
    badInput: EXIT_FAILURE,
    summary: "prints the help of a command, with examples",
    load: () => import("./help.ts").then((own) => ({ run: own.help, line: own.HELP })),
  },
  {
    name: "completion",
    badInput: EXIT_FAILURE,
    summary: "prints a script that lets bash, zsh or fish complete commands and flags",
    load: () => import("./completion.ts").then((own) => ({ run: own.completion, line: own.COMPLETION })),
  },
];

/** The command with this name; undefined for other words. */
export function findCommand(name: string): Command | undefined {
  return COMMANDS.find((command) => command.name === name);
}
