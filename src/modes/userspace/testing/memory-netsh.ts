/** An in-memory {@link NetshHost} that passes the contract of the real one. */
import type { NetworkInterfaceInfo } from "node:os";
import type { ExecResult } from "../../../kernel/process.ts";
import { familyOf, type IpAddress, parseIpAddress } from "../../../net/ip.ts";
import type { NetshHost, NetshWords } from "../netsh-assigner.ts";

/** The messages of an English Windows. */
const EXISTS = "The object already exists.";
const NO_ELEMENT = "Element not found.";
const NO_INTERFACE = "The filename, directory name, or volume label syntax is incorrect.";

export class MemoryNetsh implements NetshHost {
  readonly #addresses = new Map<string, Set<IpAddress>>();
  /** `add 10.96.0.1`, or `script` for a script. */
  readonly commands: string[] = [];
  /** Wrong results of `netsh`, by command as above. */
  readonly answers = new Map<string, ExecResult>();
  /** Until when nothing can be bound to an address, in milliseconds. */
  readonly unusableUntilMs = new Map<string, number>();
  readonly #nowMs: () => number;

  constructor(interfaces: Readonly<Record<string, readonly string[]>>, nowMs: () => number = () => 0) {
    this.#nowMs = nowMs;
    for (const [name, addresses] of Object.entries(interfaces))
      this.#addresses.set(name, new Set(addresses.map(known)));
  }

  /** The addresses of an interface. */
  on(interfaceName: string): readonly string[] {
    return [...(this.#addresses.get(interfaceName) ?? [])];
  }

  /** Removes an address, as another program would. */
  lose(interfaceName: string, address: string): void {
    this.#addresses.get(interfaceName)?.delete(known(address));
  }

  /** Adds an address to an interface, as another program would. */
  gain(interfaceName: string, address: string): void {
    this.#addresses.get(interfaceName)?.add(known(address));
  }

  readonly interfaces = (): NodeJS.Dict<NetworkInterfaceInfo[]> => {
    // Like the system's own list, this omits interfaces without addresses.
    const listed = [...this.#addresses].filter(([, addresses]) => addresses.size > 0);
    return Object.fromEntries(listed.map(([name, addresses]) => [name, [...addresses].map(infoOf)]));
  };

  async netsh(words: NetshWords): Promise<ExecResult> {
    return this.#run(words);
  }

  async netshScript(text: string): Promise<void> {
    this.commands.push("script");
    for (const line of text.split("\r\n").filter((one) => one !== "")) {
      this.#run([...line.matchAll(/(?:[^\s"]|"[^"]*")+/g)].map(([word]) => word.replaceAll('"', "")));
    }
  }

  async canBind(address: IpAddress): Promise<boolean> {
    const isPresent = [...this.#addresses.values()].some((addresses) => addresses.has(address));
    return isPresent && this.#nowMs() >= (this.unusableUntilMs.get(address) ?? 0);
  }

  #run(words: NetshWords): ExecResult {
    const [context, family, verb, what] = words;
    const value = (name: string) => words.find((word) => word.startsWith(`${name}=`))?.slice(name.length + 1);
    const text = (value("address") ?? "").replace(/\/128$/, "");
    const isCommand = context === "interface" && what === "address" && (verb === "add" || verb === "delete");
    const address = parseIpAddress(text);
    const isOfFamily = address !== undefined && familyOf(address).toLowerCase() === family;
    if (!isCommand || !isOfFamily) return refusal(`The following command was not found: ${words.join(" ")}.`);
    const command = `${verb} ${address}`;
    this.commands.push(command);
    const given = this.answers.get(command);
    if (given !== undefined) return given;
    const addresses = this.#addresses.get(value(family === "ipv4" ? "name" : "interface") ?? "");
    if (addresses === undefined) return refusal(NO_INTERFACE);
    if (verb === "add" && [...this.#addresses.values()].some((all) => all.has(address))) return refusal(EXISTS);
    if (verb === "delete" && !addresses.has(address)) return refusal(NO_ELEMENT);
    if (verb === "add") addresses.add(address);
    else addresses.delete(address);
    return { status: 0, stdout: "", stderr: "" };
  }
}

function known(text: string): IpAddress {
  const address = parseIpAddress(text);
  if (address === undefined) throw new TypeError(`no address: ${text}`);
  return address;
}

const refusal = (text: string): ExecResult => ({ status: 1, stdout: `${text}\r\n\r\n`, stderr: "" });

function infoOf(address: IpAddress): NetworkInterfaceInfo {
  const shared = { address, mac: "00:15:5d:00:00:01", internal: false };
  return familyOf(address) === "IPv4"
    ? { ...shared, family: "IPv4", netmask: "255.255.255.255", cidr: `${address}/32` }
    : {
        ...shared,
        family: "IPv6",
        netmask: "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
        cidr: `${address}/128`,
        scopeid: 0,
      };
}
