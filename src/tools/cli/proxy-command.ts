/**
 * kube-proxy's own command: from flags and configuration file to a running daemon, or to an action: `--version`,
 * `--write-config-to`, `--cleanup`, `--init-only`. The steps are in upstream's order (reference start.md §1).
 */
import { writeFileSync } from "node:fs";
import type { RunOptions } from "../../agent/daemon/daemon.ts";
import type { WindowsService, WindowsServiceOptions } from "../../agent/daemon/windows-service.ts";
import { parseListenAddress } from "../../agent/server/http/listen-address.ts";
import { configFileState } from "../../agent/settings/watch-config-file.ts";
import type { KubeProxyConfig } from "../../contract/config/config.ts";
import { releaseOf } from "../../contract/config/release.ts";
import { FINISHES, KEEPS_RULES, type StopPolicy } from "../../contract/stop-policy.ts";
import { createLogger, type LoggerOptions, type RootLogger } from "../../logging/create-logger.ts";
import { messageOf } from "../../logging/message-of.ts";
import { ProblemMemory } from "../../logging/problem-memory.ts";
import { modeNamed, modesInCleanUpOrder } from "../../modes/registry.ts";
import { isLoopback } from "../../net/ip.ts";
import { programIdentity } from "../../program/program-identity.ts";
import { formatMs } from "../../text/duration.ts";
import { fitHelp } from "../../text/fit-lines.ts";
import { readBounded } from "./bounded-input.ts";
import { parseCommandLine } from "./flags/command-line.ts";
import { type CompletedOptions, completeOptions, requireConfig, requireLogging } from "./flags/complete.ts";
import { LOG_FILE, VERSION, WINDOWS_SERVICE } from "./flags/process.ts";
import { CommandError, EXIT_FAILURE, EXIT_SUCCESS, type Output, UsageError } from "./output.ts";

/** Its file descriptor. */
const STDOUT = 1;

/** Runs the command. @returns the exit status. @throws UsageError for a command line that cannot be read. */
export async function proxyCommand(argv: readonly string[], output: Output): Promise<number> {
  const command = parseCommandLine(argv);
  for (const line of command.stderrLines) output.err(`${line}\n`);
  if (command.kind !== "run") {
    const text = command.kind === "print" ? command.text : (await import("./flags/help.ts")).helpText();
    output.out(fitHelp(text, output.terminal?.width));
    return EXIT_SUCCESS;
  }
  const write = await writerOf(command.flags.get(LOG_FILE));
  let log = createLogger(write);
  let policy = KEEPS_RULES;
  let service: WindowsService | undefined;
  const { signal: stop, request, limitEnd } = stopSignal(() => ({ log, policy, service }));
  const runAsService = async (): Promise<void> => {
    service ??= await startService({ log: () => log, stopLimitMs: () => policy.limitMs, onStop: request });
  };
  const end = async (status: number): Promise<number> => {
    await service?.ended(status);
    if (status !== EXIT_SUCCESS) endService(service);
    return status;
  };
  try {
    // Before anything that may fail: the manager waits for it.
    if (command.flags.get(WINDOWS_SERVICE)) await runAsService();
    let fileState: RunOptions["configFileState"];
    const readFile = (path: string): Promise<Buffer> => {
      fileState = configFileState(path);
      return readBounded(path);
    };
    const options = await completeOptions(command.flags, readFile);
    // Notices about the configuration come before the logger is configured; the program's name comes first of all.
    if (options.notices.length > 0) introduce(log);
    for (const { level, message, facts } of options.notices) {
      if (level === "warning") log.warn(message, facts);
      else log.info(message, facts);
    }
    requireLogging(options);
    const { inspectBindAddress, inspectSocket } = options.actions;
    const problems = inspectBindAddress === "" && inspectSocket === "" ? undefined : new ProblemMemory();
    log = configuredLogger(options, problems, write);
    if (options.notices.length === 0) introduce(log);
    for (const [name, value] of options.flagSnapshot) log.v(1, `FLAG: --${name}=${JSON.stringify(value)}`);
    const config = requireConfig(options);
    policy = isDaemon(options) ? (modeNamed(config.mode).stopPolicy?.(config) ?? KEEPS_RULES) : FINISHES;
    if (process.platform === "win32" && isDaemon(options)) {
      if (config.windowsRunAsService) await runAsService();
      // The service control manager tells a service to stop.
      if (service === undefined) await listenForShutdown(log, request);
      if (config.windowsPriorityClass !== "") {
        const { applyPriorityClass } = await import("../../agent/daemon/windows-priority.ts");
        applyPriorityClass(config.windowsPriorityClass, log);
      }
    }
    return await end(
      await act(config, options, log, stop, {
        version: command.flags.get(VERSION).gitVersion ?? releaseOf(config).version,
        problems,
        onFatal: limitEnd,
        configFileState: fileState,
      }),
    );
  } catch (error) {
    log.error("command failed", error instanceof CommandError ? new Error(error.message) : error);
    limitEnd();
    return await end(EXIT_FAILURE);
  }
}

function isDaemon({ actions }: CompletedOptions): boolean {
  return actions.writeConfigTo === "" && !actions.cleanup && !actions.initOnly;
}

/** @throws CommandError if there is no service control manager, or if it did not start this process. */
async function startService(options: Omit<WindowsServiceOptions, "calls">): Promise<WindowsService> {
  try {
    if (process.platform !== "win32") throw new Error("--windows-service is only for Windows");
    const [{ WindowsService, SERVICE_NAME }, { openServiceCalls }] = await Promise.all([
      import("../../agent/daemon/windows-service.ts"),
      import("../../kernel/windows/service-calls.ts"),
    ]);
    return await WindowsService.start({ ...options, calls: openServiceCalls(SERVICE_NAME) });
  } catch (error) {
    throw new CommandError(`failed os init: ${messageOf(error)}`);
  }
}

/** Also stops when a HostProcess container ends. */
async function listenForShutdown(log: RootLogger, request: (reason: string) => void): Promise<void> {
  const { onShutdownEvent } = await import("../../kernel/windows/shutdown-event.ts");
  onShutdownEvent(
    () => request("CTRL_SHUTDOWN_EVENT"),
    (error) => log.error("The end of a HostProcess container will not be noticed", error),
  );
}

function introduce(log: RootLogger): void {
  const { name, version, commit, node } = programIdentity();
  log.info(`Starting ${name}`, { version, commit, node });
}

/** Where log lines go: to a file, or to the standard streams. @throws UsageError for a file that cannot be opened. */
async function writerOf(path: string): Promise<Pick<LoggerOptions, "write">> {
  if (path === "") return {};
  try {
    const { logFile } = await import("../../logging/log-file.ts");
    return { write: logFile(path) };
  } catch (error) {
    const reason = messageOf(error);
    throw new UsageError(`--log-file cannot be opened: ${reason}`);
  }
}

function configuredLogger(
  { config: { logging } }: CompletedOptions,
  problems: ProblemMemory | undefined,
  write: Pick<LoggerOptions, "write">,
): RootLogger {
  const format = logging.format === "json" ? "json" : "text";
  return createLogger({
    format,
    verbosity: logging.verbosity,
    vmodule: logging.vmodule,
    splitStream: logging.options[format].splitStream,
    ...write,
    ...(problems === undefined ? {} : { onRecord: (record) => problems.note(record) }),
  });
}

/** What only the daemon needs. */
type ForDaemon = Pick<RunOptions, "version" | "problems" | "onFatal" | "configFileState">;

async function act(
  config: KubeProxyConfig,
  { actions, flagSnapshot, isMinSyncPeriodSet, isModeSet }: CompletedOptions,
  log: RootLogger,
  stop: AbortSignal,
  forDaemon: ForDaemon,
): Promise<number> {
  if (actions.writeConfigTo !== "") {
    const { encodeYaml } = await import("../../agent/settings/v1alpha1-encode.ts");
    // Opening /dev/stdout would truncate a file behind it.
    const file = actions.writeConfigTo === "/dev/stdout" ? STDOUT : actions.writeConfigTo;
    writeFileSync(file, await encodeYaml(config));
    log.info("Wrote configuration", { file: actions.writeConfigTo });
    return EXIT_SUCCESS;
  }
  if (actions.cleanup) return await cleanUp(log, config);
  if (actions.inspectBindAddress !== "") checkPageAddress(actions.inspectBindAddress, log);
  const { runProxy } = await import("../../agent/daemon/run-proxy.ts");
  try {
    stop.throwIfAborted();
    await runProxy(
      {
        ...{ config, isMinSyncPeriodSet, isModeSet, ...actions, log, ...forDaemon },
        loadPage: async (...page) => await (await import("../page/serve-page.ts")).loadPage(...page),
        flags: new Map(flagSnapshot),
        setVerbosity: (level) => log.setVerbosity(level),
      },
      stop,
    );
    return EXIT_SUCCESS;
  } catch (error) {
    // A stop before --init-only has done its work is a failure.
    if (stop.aborted && !actions.initOnly) return EXIT_SUCCESS;
    log.error("Error running ProxyServer", error);
    throw error;
  }
}

/** @param address of the page. @throws CommandError for an invalid one. */
function checkPageAddress(address: string, log: RootLogger): void {
  const parsed = parseListenAddress(address);
  if (parsed === undefined) {
    throw new CommandError(`--inspect-bind-address must be IP:port, such as 127.0.0.1:10260; got "${address}"`);
  }
  if (!isLoopback(parsed.host)) {
    log.warn("The page can be read by all who reach its address: it shows services, endpoints and rules", { address });
  }
}

async function cleanUp(log: RootLogger, config: KubeProxyConfig): Promise<number> {
  const { removeLeftovers, UNANSWERED_LEFT } = await import("../../agent/daemon/leftovers.ts");
  const all = [...UNANSWERED_LEFT, ...modesInCleanUpOrder()];
  if ((await removeLeftovers(all, { config, log })).length === 0) return EXIT_SUCCESS;
  throw new CommandError("encountered an error while tearing down rules");
}

/**
 * Aborts on SIGTERM and SIGINT, from the first moment on, so that the process also ends cleanly as PID 1, which has no
 * default actions. A second signal, or a stop that takes too long, ends the process at once.
 */
function stopSignal(
  current: () => {
    readonly log: RootLogger;
    readonly policy: StopPolicy;
    readonly service: WindowsService | undefined;
  },
) {
  const stop = new AbortController();
  const limit = (hasFailed: boolean): void => {
    const { limitMs } = current().policy;
    const exit = (): void => {
      const { log, policy, service } = current();
      log.warn("Ended before everything was done: the time limit of a stop is over", { limit: formatMs(limitMs) });
      if (hasFailed) endService(service);
      service?.stopped();
      process.exit(hasFailed || policy === FINISHES ? EXIT_FAILURE : EXIT_SUCCESS);
    };
    setTimeout(exit, limitMs).unref();
  };
  const onSignal = (name: string): void => {
    if (stop.signal.aborted) process.exit(EXIT_FAILURE);
    const { log, policy } = current();
    log.info(policy.message, { signal: name });
    stop.abort();
    limit(false);
  };
  process.on("SIGTERM", onSignal);
  process.on("SIGINT", onSignal);
  // Ctrl-Break, and closing the console.
  if (process.platform === "win32") for (const name of ["SIGBREAK", "SIGHUP"] as const) process.on(name, onSignal);
  return {
    signal: stop.signal,
    /** Requests the same end for another reason. */
    request: onSignal,
    /** For an end after a failure: it may take no longer than a stop. */
    limitEnd: () => limit(true),
  };
}

/** After a failure: the thread that waits for the service control manager allows no other end of the process. The status is then 1. */
function endService(service: WindowsService | undefined): void {
  if (service !== undefined) process.kill(process.pid, "SIGKILL");
}
