/**
 * Gives a Windows host Service addresses by running `netsh`. Present addresses are read from the system itself, because
 * the output of `netsh` depends on its language. Tested under Wine with a `netsh` of this repository, since Wine's own
 * does nothing; not on Windows. Reference userspace.md §2.
 *
 * Unlike upstream: an address is added for one host, not for the network of its class; the host starts no connections from it; a
 * restart of Windows removes it; it is removed only when no service port uses it, and never if the host had it before; IPv6 works.
 */
import type { networkInterfaces } from "node:os";
import type { Clock } from "../../async/clock.ts";
import type { ExecResult } from "../../kernel/process.ts";
import type { Logger } from "../../logging/logger.ts";
import { familyOf, type IpAddress, type IpFamily, parseIpAddress } from "../../net/ip.ts";
import type { AddressLedger } from "./address-ledger.ts";

export interface AssignmentOutcome {
  /** Addresses that could not be added, and why. */
  readonly refused: ReadonlyMap<IpAddress, string>;
  /** Addresses that the host did not have before: sockets from an earlier time no longer work. */
  readonly added: ReadonlySet<IpAddress>;
}

/** Gives this host addresses if the mode listens at Service addresses itself. */
export interface AddressAssigner {
  /**
   * Adds the wanted addresses that the host lacks, and removes those that were added before, even by an earlier run,
   * and are no longer wanted.
   */
  update(wanted: ReadonlySet<IpAddress>, signal: AbortSignal): Promise<AssignmentOutcome>;
  /** Whether the host still has all addresses that were added. */
  isIntact(): boolean;
}

/** The host as {@link NetshAssigner} sees it. */
export interface NetshHost {
  readonly interfaces: typeof networkInterfaces;
  /** Runs one command. */
  netsh(words: NetshWords, signal: AbortSignal): Promise<ExecResult>;
  /** Runs the lines of a script one after the other, even after failures. */
  netshScript(text: string, signal: AbortSignal): Promise<void>;
  /** Whether a socket can be bound to the address: duplicate address detection may take seconds for a new one. */
  canBind(address: IpAddress): Promise<boolean>;
}

interface NetshAssignerOptions {
  readonly family: IpFamily;
  readonly interfaceName: string;
  readonly host: NetshHost;
  /** Shared by both families. */
  readonly ledger: AddressLedger;
  readonly clock: Clock;
  readonly log: Logger;
}

const POLL_MS = 100;
/** Upstream waits forever and holds up every other Service. */
const USABLE_LIMIT_MS = 10_000;
/** From this number on, one process for each address costs more than one script and a look at its result. */
const SCRIPT_FROM = 3;

export class NetshAssigner implements AddressAssigner {
  readonly #options: NetshAssignerOptions;
  /** Wanted addresses that were added to the host. */
  #confirmed: readonly IpAddress[] = [];

  constructor(options: NetshAssignerOptions) {
    this.#options = options;
  }

  async update(wanted: ReadonlySet<IpAddress>, signal: AbortSignal): Promise<AssignmentOutcome> {
    const { ledger, interfaceName } = this.#options;
    // Addresses come and go during the update.
    this.#confirmed = [];
    await this.#giveBack(wanted, signal);
    const present = this.#present();
    const missing = [...wanted].filter((address) => !present.has(address));
    ledger.add(missing, interfaceName);
    const refused = await this.#add(missing, signal);
    ledger.remove(refused.keys());
    const added = missing.filter((address) => !refused.has(address));
    for (const address of await this.#unusableAfterWait(added, signal)) {
      const limit = USABLE_LIMIT_MS / 1000;
      refused.set(address, `could not be used within ${limit} s of being added to interface "${interfaceName}"`);
    }
    // Not the present addresses: another program may have removed some in the meantime.
    this.#confirmed = this.#ours()
      .map(([address]) => address)
      .filter((address) => wanted.has(address) && !refused.has(address));
    return { refused, added: new Set(added) };
  }

  isIntact(): boolean {
    const present = this.#present();
    return this.#confirmed.every((address) => present.has(address));
  }

  /** Removes unwanted addresses from their interface, and forgets those that are gone already. */
  async #giveBack(wanted: ReadonlySet<IpAddress>, signal: AbortSignal): Promise<void> {
    const { ledger, log } = this.#options;
    const present = this.#present();
    const unused = this.#ours().filter(([address]) => !wanted.has(address));
    const commands = new Map(
      unused
        .filter(([address]) => present.has(address))
        .map(([address, interfaceName]) => [address, deleteAddress(interfaceName, address)]),
    );
    const kept = await this.#run(commands, false, signal);
    for (const [address, problem] of kept) {
      log.error("Failed to remove a service address", new Error(problem), { address });
    }
    ledger.remove(unused.map(([address]) => address).filter((address) => !kept.has(address)));
  }

  async #add(missing: readonly IpAddress[], signal: AbortSignal): Promise<Map<IpAddress, string>> {
    const { interfaceName, host } = this.#options;
    const commands = new Map(missing.map((address) => [address, addAddress(interfaceName, address)]));
    const refused = await this.#run(commands, true, signal);
    const known = host.interfaces();
    if (refused.size === 0 || known[interfaceName] !== undefined) return refused;
    const advice =
      `this host has no interface "${interfaceName}" with an address; ` +
      `set the environment variable INTERFACE_TO_ADD_SERVICE_IP to one of: ${Object.keys(known).join(", ")}`;
    for (const [address, problem] of refused) refused.set(address, `${problem}; ${advice}`);
    return refused;
  }

  /** @param isThere whether the commands add the addresses, or delete them. @returns why commands failed. */
  async #run(
    commands: ReadonlyMap<IpAddress, NetshWords>,
    isThere: boolean,
    signal: AbortSignal,
  ): Promise<Map<IpAddress, string>> {
    const { host } = this.#options;
    const script = commands.size < SCRIPT_FROM ? undefined : netshScript(commands.values());
    if (script !== undefined) await host.netshScript(script, signal);
    const afterScript = script === undefined ? undefined : this.#present();
    const failures = new Map<IpAddress, string>();
    for (const [address, words] of commands) {
      signal.throwIfAborted();
      // A script does not say which line failed or why.
      if (afterScript?.has(address) === isThere) continue;
      const { status, stdout, stderr } = await host.netsh(words, signal);
      if (status === 0 && this.#present().has(address) === isThere) continue;
      const said = `${stdout}${stderr}`.trim().replaceAll(/\s+/g, " ");
      const outcome = status === 0 ? "it succeeded but changed nothing" : `exit status ${status}`;
      failures.set(address, `netsh ${words.join(" ")}: ${outcome}${said === "" ? "" : `: ${said}`}`);
    }
    return failures;
  }

  /** Waits until sockets can be bound to the addresses. @returns those that are unusable at the end of the wait. */
  async #unusableAfterWait(added: readonly IpAddress[], signal: AbortSignal): Promise<readonly IpAddress[]> {
    const { clock, host } = this.#options;
    const endMs = clock.monotonicMs() + USABLE_LIMIT_MS;
    let unusable = added;
    for (;;) {
      const usable = await Promise.all(unusable.map((address) => host.canBind(address)));
      unusable = unusable.filter((_, index) => usable[index] !== true);
      if (unusable.length === 0 || clock.monotonicMs() >= endMs) return unusable;
      await clock.sleep(POLL_MS, signal);
      signal.throwIfAborted();
    }
  }

  #present(): ReadonlySet<IpAddress> {
    return hostAddressesOf(this.#options.host.interfaces());
  }

  /** Addresses of this family that were added to the host. */
  #ours(): readonly (readonly [IpAddress, string])[] {
    const { ledger, family } = this.#options;
    return [...ledger.entries].filter(([address]) => familyOf(address) === family);
  }
}

/** The addresses of all interfaces, both families. */
export function hostAddressesOf(interfaces: ReturnType<typeof networkInterfaces>): ReadonlySet<IpAddress> {
  const entries = Object.values(interfaces).flatMap((found) => found ?? []);
  return new Set(entries.map(({ address }) => parseIpAddress(address)).filter((address) => address !== undefined));
}

/** The arguments of `netsh`. */
export type NetshWords = readonly string[];

/** The interface for the addresses, unless INTERFACE_TO_ADD_SERVICE_IP names another. */
export const DEFAULT_INTERFACE = "vEthernet (HNS Internal NIC)";

/** The command that adds an address to the interface. */
export function addAddress(interfaceName: string, address: IpAddress): NetshWords {
  const rest = ["store=active", "skipassource=true"];
  return familyOf(address) === "IPv4"
    ? [...words("ipv4", "add", interfaceName), `address=${address}`, "mask=255.255.255.255", ...rest]
    : [...words("ipv6", "add", interfaceName), `address=${address}/128`, ...rest];
}

/** The command that deletes it. */
export function deleteAddress(interfaceName: string, address: IpAddress): NetshWords {
  return [...words(familyOf(address) === "IPv4" ? "ipv4" : "ipv6", "delete", interfaceName), `address=${address}`];
}

const words = (family: "ipv4" | "ipv6", verb: string, interfaceName: string): NetshWords => [
  ...["interface", family, verb, "address"],
  `${family === "ipv4" ? "name" : "interface"}=${interfaceName}`,
];

/**
 * Writes commands as a script for `netsh -f`, which runs them all in one process.
 *
 * @returns undefined if an argument is not plain ASCII or has a quote, since the encoding of such a file is unspecified.
 */
export function netshScript(commands: Iterable<NetshWords>): string | undefined {
  const lines: string[] = [];
  for (const command of commands) {
    if (command.some((word) => !/^[ !#-~]*$/.test(word))) return undefined;
    lines.push(command.map((word) => word.replace(/^(\w+)=(.* .*)$/, '$1="$2"')).join(" "));
  }
  return `${lines.join("\r\n")}\r\n`;
}
