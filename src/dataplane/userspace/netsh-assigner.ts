/**
 * Gives a Windows host service addresses by running `netsh`. What is there is asked of the system itself, because the words that
 * `netsh` prints depend on its language. Run under Wine, whose own `netsh` does nothing, with one of this repository; not on Windows.
 * Reference userspace.md §2.
 *
 * Unlike upstream, an address is one host and not a network of its class, the host starts no connection from it, and a restart of
 * Windows removes it; it is given back only when no portal of any service port wants it, and never when the host had it before; IPv6.
 */
import type { networkInterfaces } from "node:os";
import type { Clock } from "../../async/clock.ts";
import type { ExecResult } from "../../kernel/process.ts";
import type { Logger } from "../../logging/logger.ts";
import { familyOf, type IpAddress, type IpFamily, parseIpAddress } from "../../net/ip.ts";
import type { AddressLedger } from "./address-ledger.ts";

export interface AssignmentOutcome {
  /** Those that could not be had, and why. */
  readonly refused: ReadonlyMap<IpAddress, string>;
  /** Those that the host did not have before: a socket that was there does not work any more. */
  readonly added: ReadonlySet<IpAddress>;
}

/** Gives this host addresses, where the mode listens on service addresses itself. */
export interface AddressAssigner {
  /**
   * Takes on those of the addresses that the host does not have, and gives back those that it took on before, also in an earlier
   * run, and that are not among them any more.
   */
  update(wanted: ReadonlySet<IpAddress>, signal: AbortSignal): Promise<AssignmentOutcome>;
  /** Whether the host has all that it was given. */
  isIntact(): boolean;
}

/** The host as {@link NetshAssigner} sees it. */
export interface NetshHost {
  readonly interfaces: typeof networkInterfaces;
  /** Runs one command. */
  netsh(words: NetshWords, signal: AbortSignal): Promise<ExecResult>;
  /** Runs the lines of a script, one after the other, also after failures. */
  netshScript(text: string, signal: AbortSignal): Promise<void>;
  /** Whether a socket may be bound to the address: a new one is looked for on the network first, for seconds. */
  canBind(address: IpAddress): Promise<boolean>;
}

interface NetshAssignerOptions {
  readonly family: IpFamily;
  readonly interfaceName: string;
  readonly host: NetshHost;
  /** Shared by the families. */
  readonly ledger: AddressLedger;
  readonly clock: Clock;
  readonly log: Logger;
}

const POLL_MS = 100;
/** Upstream waits without end, and with it every other service. */
const USABLE_LIMIT_MS = 10_000;
/** From so many on, starting one process for each costs more than reading back what one for all has done. */
const SCRIPT_FROM = 3;

export class NetshAssigner implements AddressAssigner {
  readonly #options: NetshAssignerOptions;
  /** Addresses that the host was given. */
  #confirmed: readonly IpAddress[] = [];

  constructor(options: NetshAssignerOptions) {
    this.#options = options;
  }

  async update(wanted: ReadonlySet<IpAddress>, signal: AbortSignal): Promise<AssignmentOutcome> {
    const { ledger, interfaceName } = this.#options;
    // Meanwhile addresses come and go.
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
    // Not what is there now: another program may have taken something away meanwhile.
    this.#confirmed = this.#ours()
      .map(([address]) => address)
      .filter((address) => wanted.has(address) && !refused.has(address));
    return { refused, added: new Set(added) };
  }

  isIntact(): boolean {
    const present = this.#present();
    return this.#confirmed.every((address) => present.has(address));
  }

  /** Takes addresses that are no longer wanted off their interface, and forgets those that are gone already. */
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
      log.error("A service address could not be given back", new Error(problem), { address });
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

  /** @param isThere whether the addresses are there when it is done. @returns what could not be done, and why. */
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
      // A script does not say which line failed, and why.
      if (afterScript?.has(address) === isThere) continue;
      const { status, stdout, stderr } = await host.netsh(words, signal);
      if (status === 0 && this.#present().has(address) === isThere) continue;
      const said = `${stdout}${stderr}`.trim().replaceAll(/\s+/g, " ");
      const outcome = status === 0 ? "it ended well and changed nothing" : `exit status ${status}`;
      failures.set(address, `netsh ${words.join(" ")}: ${outcome}${said === "" ? "" : `: ${said}`}`);
    }
    return failures;
  }

  /** Waits until sockets can be bound to the addresses. @returns those to which none can in time. */
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

  /** Addresses of this family that the host was given. */
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

/** The words after `netsh`. */
export type NetshWords = readonly string[];

/** The interface that takes the addresses, unless INTERFACE_TO_ADD_SERVICE_IP names another. */
export const DEFAULT_INTERFACE = "vEthernet (HNS Internal NIC)";

/** Gives the interface an address. */
export function addAddress(interfaceName: string, address: IpAddress): NetshWords {
  const rest = ["store=active", "skipassource=true"];
  return familyOf(address) === "IPv4"
    ? [...words("ipv4", "add", interfaceName), `address=${address}`, "mask=255.255.255.255", ...rest]
    : [...words("ipv6", "add", interfaceName), `address=${address}/128`, ...rest];
}

/** Takes it back. */
export function deleteAddress(interfaceName: string, address: IpAddress): NetshWords {
  return [...words(familyOf(address) === "IPv4" ? "ipv4" : "ipv6", "delete", interfaceName), `address=${address}`];
}

const words = (family: "ipv4" | "ipv6", verb: string, interfaceName: string): NetshWords => [
  ...["interface", family, verb, "address"],
  `${family === "ipv4" ? "name" : "interface"}=${interfaceName}`,
];

/**
 * Commands as the lines of a script for `netsh -f`, which does them all in one process.
 *
 * @returns undefined for words that such a file cannot hold without doubt: it has no encoding of its own.
 */
export function netshScript(commands: Iterable<NetshWords>): string | undefined {
  const lines: string[] = [];
  for (const command of commands) {
    if (command.some((word) => !/^[ !#-~]*$/.test(word))) return undefined;
    lines.push(command.map((word) => word.replace(/^(\w+)=(.* .*)$/, '$1="$2"')).join(" "));
  }
  return `${lines.join("\r\n")}\r\n`;
}
