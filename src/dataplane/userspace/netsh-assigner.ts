/** Gives a Windows host service addresses by running `netsh`. Not tried on Windows. Reference userspace.md §2. */

import type { Clock } from "../../async/clock.ts";
import type { Exec } from "../../kernel/process.ts";
import type { Logger } from "../../logging/logger.ts";
import type { IpAddress } from "../../net/ip.ts";
import type { AddressAssigner } from "./address-assigner.ts";
import { type NetshCommand, planAddresses, showAddresses, shownAddresses } from "./plan-netsh.ts";

export interface NetshAssignerOptions {
  readonly interfaceName: string;
  /** The addresses of all interfaces. */
  readonly hostAddresses: () => Promise<readonly IpAddress[]>;
  readonly exec: Exec;
  readonly clock: Clock;
  readonly log: Logger;
}

const POLL_MS = 500;
/** Upstream waits without end, and with it every other service (userspace.md §2). */
const APPEARANCE_LIMIT_MS = 10_000;
const COMMAND_LIMIT_MS = 30_000;

export class NetshAssigner implements AddressAssigner {
  readonly #options: NetshAssignerOptions;
  readonly #assigned = new Set<IpAddress>();

  constructor(options: NetshAssignerOptions) {
    this.#options = options;
  }

  async update(wanted: ReadonlySet<IpAddress>, signal: AbortSignal): Promise<ReadonlyMap<IpAddress, string>> {
    const { interfaceName, hostAddresses, log } = this.#options;
    const refused = new Map<IpAddress, string>();
    const present = new Set([...(await hostAddresses()), ...(await this.#shown(signal))]);
    const plan = planAddresses({ interfaceName, present, assigned: this.#assigned, wanted });
    for (const [address, command] of plan.remove) {
      this.#assigned.delete(address);
      const problem = await this.#run(command, signal);
      if (problem !== undefined)
        log.error("A service address could not be given back", new Error(problem), { address });
    }
    for (const [address, command] of plan.add) {
      const problem = await this.#run(command, signal);
      if (problem === undefined) this.#assigned.add(address);
      else refused.set(address, problem);
    }
    for (const address of plan.unsupported) refused.set(address, "netsh is used for IPv4 addresses only");
    const added = [...plan.add.keys()].filter((address) => !refused.has(address));
    for (const address of await this.#missingAfterWait(added, signal)) {
      const limit = APPEARANCE_LIMIT_MS / 1000;
      refused.set(address, `did not appear on interface "${interfaceName}" within ${limit} s of netsh adding it`);
    }
    return refused;
  }

  /** Waits until the interface shows the addresses. @returns those that it does not show in time. */
  async #missingAfterWait(added: readonly IpAddress[], signal: AbortSignal): Promise<readonly IpAddress[]> {
    const { clock } = this.#options;
    const endMs = clock.monotonicMs() + APPEARANCE_LIMIT_MS;
    let missing = added;
    while (missing.length > 0) {
      const shown = await this.#shown(signal);
      missing = missing.filter((address) => !shown.has(address));
      if (missing.length === 0 || clock.monotonicMs() >= endMs) break;
      await clock.sleep(POLL_MS, signal);
      signal.throwIfAborted();
    }
    return missing;
  }

  async #shown(signal: AbortSignal): Promise<ReadonlySet<IpAddress>> {
    const { exec, interfaceName } = this.#options;
    const { file, args } = showAddresses(interfaceName);
    const { stdout } = await exec(file, args, { signal, timeoutMs: COMMAND_LIMIT_MS });
    return shownAddresses(stdout);
  }

  /** @returns what went wrong, or undefined. */
  async #run({ file, args }: NetshCommand, signal: AbortSignal): Promise<string | undefined> {
    const { status, stdout, stderr } = await this.#options.exec(file, args, { signal, timeoutMs: COMMAND_LIMIT_MS });
    if (status === 0) return undefined;
    const said = `${stdout}${stderr}`.trim();
    return `${file} ${args.join(" ")}: exit status ${status}: ${said === "" ? "no output" : said}`;
  }
}
