/**
 * The commands beside kube-proxy's own command line: `main.ts` runs them, `--help`, the shell completion and docs/commands.md list
 * them. Each is loaded only when it is asked for.
 */
import { EXIT_BAD_INPUT, EXIT_FAILURE } from "./exit.ts";
import type { Output } from "./output.ts";

/** One command. */
export interface Command {
  readonly name: string;
  /** One line for lists of commands. */
  readonly summary: string;
  /** Whether it asks a running daemon, and so takes `--node` and `--all-nodes` (on-nodes.ts). @default false */
  readonly asksDaemon?: boolean;
  /** The exit status of a command line that cannot be used: 2 where 1 is an answer. */
  readonly badInput: typeof EXIT_FAILURE | typeof EXIT_BAD_INPUT;
  /** @param argv the arguments after its name. @returns the exit status. @throws UsageError */
  run(argv: readonly string[], output: Output): Promise<number>;
  /** The text of its `--help`. */
  usage(): Promise<string>;
}

export const COMMANDS: readonly Command[] = [
  {
    name: "render",
    badInput: EXIT_FAILURE,
    summary: "prints what would be programmed",
    run: async (argv, output) => await (await import("./render.ts")).render(argv, output),
    usage: async () => (await import("./render.ts")).RENDER_USAGE,
  },
  {
    name: "explain",
    badInput: EXIT_BAD_INPUT,
    summary: "says what a Service, an address, a port or a name in the kernel is on a node, and why",
    run: async (argv, output) => await (await import("./explain.ts")).explain(argv, output),
    usage: async () => (await import("./explain.ts")).EXPLAIN_USAGE,
  },
  {
    name: "trace",
    badInput: EXIT_BAD_INPUT,
    summary: "leads a packet through the rules of a node, and says what becomes of it",
    run: async (argv, output) => await (await import("./trace.ts")).trace(argv, output),
    usage: async () => (await import("./trace.ts")).TRACE_USAGE,
  },
  {
    name: "diff",
    asksDaemon: true,
    badInput: EXIT_BAD_INPUT,
    summary: "says what a change of manifests does, or what in a kernel is not as it is wanted",
    run: async (argv, output) => await (await import("./diff.ts")).diff(argv, output),
    usage: async () => (await import("./diff-options.ts")).DIFF_USAGE,
  },
  {
    name: "prove",
    asksDaemon: true,
    badInput: EXIT_BAD_INPUT,
    summary: "says whether rules do with every packet what the Services ask for, or what other rules do",
    run: async (argv, output) => await (await import("./prove.ts")).proveCommand(argv, output),
    usage: async () => (await import("./prove.ts")).PROVE_USAGE,
  },
  {
    name: "status",
    asksDaemon: true,
    badInput: EXIT_BAD_INPUT,
    summary: "says how a running daemon is doing",
    run: async (argv, output) => await (await import("./status.ts")).status(argv, output),
    usage: async () => (await import("./status.ts")).STATUS_USAGE,
  },
  {
    name: "services",
    asksDaemon: true,
    badInput: EXIT_BAD_INPUT,
    summary: "prints the service table of a running daemon",
    run: async (argv, output) => await (await import("./services.ts")).services(argv, output),
    usage: async () => (await import("./services.ts")).SERVICES_USAGE,
  },
  {
    name: "flows",
    asksDaemon: true,
    badInput: EXIT_BAD_INPUT,
    summary: "prints who talks to which Service through this node",
    run: async (argv, output) => await (await import("./flows.ts")).flows(argv, output),
    usage: async () => (await import("./flows.ts")).FLOWS_USAGE,
  },
  {
    name: "monitor",
    asksDaemon: true,
    badInput: EXIT_BAD_INPUT,
    summary: "prints every sync of a running daemon as it happens: why, what was written, how long it took",
    run: async (argv, output) => await (await import("./monitor.ts")).monitor(argv, output),
    usage: async () => (await import("./monitor.ts")).MONITOR_USAGE,
  },
  {
    name: "sysdump",
    asksDaemon: true,
    badInput: EXIT_BAD_INPUT,
    summary: "writes one archive for support, without secrets",
    run: async (argv, output) => await (await import("./sysdump.ts")).sysdump(argv, output),
    usage: async () => (await import("./sysdump.ts")).SYSDUMP_USAGE,
  },
  {
    name: "hns-check",
    badInput: EXIT_BAD_INPUT,
    summary: "says what HNS of a Windows host is and does, and how fast",
    run: async (argv, output) => await (await import("./hns-check.ts")).hnsCheck(argv, output),
    usage: async () => (await import("./hns-check.ts")).HNS_CHECK_USAGE,
  },
  {
    name: "help",
    badInput: EXIT_FAILURE,
    summary: "prints the help of a command, with examples",
    run: async (argv, output) => await (await import("./help.ts")).help(argv, output),
    usage: async () => (await import("./help.ts")).HELP_USAGE,
  },
  {
    name: "completion",
    badInput: EXIT_FAILURE,
    summary: "prints a script that lets bash, zsh or fish complete commands and flags",
    run: async (argv, output) => await (await import("./completion.ts")).completion(argv, output),
    usage: async () => (await import("./completion.ts")).COMPLETION_USAGE,
  },
];

/** The command of a name; undefined for other words. */
export function findCommand(name: string): Command | undefined {
  return COMMANDS.find((command) => command.name === name);
}
