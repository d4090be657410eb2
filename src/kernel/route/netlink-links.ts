/** Devices and addresses over rtnetlink. */
import type { IpAddress, IpFamily } from "../../net/ip.ts";
import { NETLINK_ROUTE } from "../netlink/constants.ts";
import { answersTo } from "../netlink/dump-retry.ts";
import { hasCode, undefinedIf } from "../netlink/errors.ts";
import type { Reply } from "../netlink/frames.ts";
import { MessageBuffer } from "../netlink/message-buffer.ts";
import { NetlinkSocket } from "../netlink/socket.ts";
import { subscribe } from "../netlink/subscription.ts";
import {
  type AddressToRemove,
  type LinkAddress,
  type LinkAddressFailure,
  type LinkDescription,
  type Links,
  linkFailure,
  noDummyDevices,
  notADummy,
  withPrefixLength,
} from "./links.ts";
import type { AddressMessage } from "./rtnetlink.ts";
import * as rtnetlink from "./rtnetlink.ts";

/** On a node with many pods and addresses, the kernel answers in large datagrams. */
const RECEIVE_BUFFER_BYTES = 1024 * 1024;

/** The errno that means that there was nothing to do. */
const DONE_ALREADY = { add: "EEXIST", remove: "EADDRNOTAVAIL" } as const;

/** Devices of this process's network namespace. Methods throw a NetlinkError if the kernel rejects a request (`EPERM`). */
export function openLinks(): Links & AsyncDisposable {
  return new RtnetlinkLinks();
}

class RtnetlinkLinks implements Links, AsyncDisposable {
  readonly #socket = NetlinkSocket.open(NETLINK_ROUTE, {
    receiveBufferBytes: RECEIVE_BUFFER_BYTES,
    filtersDumps: true,
  });

  async link(name: string): Promise<LinkDescription | undefined> {
    const asked = this.#ask((messages) => rtnetlink.writeLinkGet(messages, name), rtnetlink.readLink);
    const [found] = (await asked.catch(undefinedIf("ENODEV"))) ?? [];
    return found && { name: found.name, index: found.index, kind: found.kind, isUp: found.isUp };
  }

  async ensureDummy(name: string): Promise<void> {
    if (await this.#findDummy(name)) return;
    try {
      await this.#ask((messages) => rtnetlink.writeDummyCreate(messages, name));
    } catch (error) {
      if (hasCode(error, "EOPNOTSUPP")) throw noDummyDevices(name, { cause: error });
      // Another program was faster.
      if (!hasCode(error, "EEXIST")) throw error;
      await this.#findDummy(name);
    }
  }

  async deleteDummy(name: string): Promise<void> {
    const found = await this.#findDummy(name);
    if (found === undefined) return;
    await this.#ask((messages) => rtnetlink.writeLinkDelete(messages, found.index)).catch(undefinedIf("ENODEV"));
  }

  addresses(family: IpFamily, signal?: AbortSignal): Promise<readonly LinkAddress[]> {
    return this.#listed((messages) => rtnetlink.writeAddressDump(messages, family), rtnetlink.readAddress, signal);
  }

  localRoutes(family: IpFamily, signal?: AbortSignal): Promise<readonly LinkAddress[]> {
    return this.#listed(
      (messages) => rtnetlink.writeLocalRouteDump(messages, family),
      rtnetlink.readLocalRoute,
      signal,
    );
  }

  addAddresses(link: string, addresses: readonly IpAddress[]): Promise<readonly LinkAddressFailure[]> {
    return this.#change("add", link, addresses);
  }

  removeAddresses(link: string, addresses: readonly AddressToRemove[]): Promise<readonly LinkAddressFailure[]> {
    return this.#change("remove", link, addresses);
  }

  async watch(onChange: (link: string | undefined) => void, signal: AbortSignal): Promise<void> {
    const names = new Map<number, string>();
    const stop = new AbortController();
    const subscription = subscribe({
      protocol: NETLINK_ROUTE,
      groups: [rtnetlink.RTNLGRP_LINK, rtnetlink.RTNLGRP_IPV4_IFADDR, rtnetlink.RTNLGRP_IPV6_IFADDR],
      onMessage: (reply) => this.#announce(reply, names, onChange),
      onOverrun: () => onChange(undefined),
      signal: AbortSignal.any([signal, stop.signal]),
    });
    // Names from notifications win: the list has the same names or older ones.
    const listed = this.#linkNames(signal).then((all) => {
      for (const [index, name] of all) if (!names.has(index)) names.set(index, name);
    });
    try {
      await Promise.all([subscription, listed]);
    } catch (error) {
      stop.abort();
      await subscription.catch(() => undefined);
      if (!signal.aborted) throw error;
    }
  }

  close(): Promise<void> {
    return this.#socket.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  #announce(reply: Reply, names: Map<number, string>, onChange: (link: string | undefined) => void): void {
    const link = rtnetlink.readLink(reply);
    if (link !== undefined) {
      if (link.isDeleted) names.delete(link.index);
      else names.set(link.index, link.name);
      onChange(link.name);
      return;
    }
    // Skip this socket's own changes of addresses; the kernel does not tell who changed an IPv6 address.
    if (this.#socket.hasPort(reply.portId)) return;
    const address = rtnetlink.readAddress(reply);
    if (address !== undefined) onChange(names.get(address.index));
  }

  /** The results of a dump, with the names of devices. */
  async #listed(
    write: (messages: MessageBuffer) => void,
    read: (reply: Reply) => AddressMessage | undefined,
    signal: AbortSignal | undefined,
  ): Promise<readonly LinkAddress[]> {
    const names = await this.#linkNames(signal);
    return (await this.#ask(write, read, signal)).flatMap(({ address, prefixLength, index }) => {
      const link = names.get(index);
      return link === undefined ? [] : [{ address, prefixLength, link }];
    });
  }

  /** Throws if the device is not a dummy. */
  async #findDummy(name: string): Promise<LinkDescription | undefined> {
    const found = await this.link(name);
    if (found !== undefined && found.kind !== "dummy") throw notADummy(name, found.kind);
    return found;
  }

  async #linkNames(signal: AbortSignal | undefined): Promise<ReadonlyMap<number, string>> {
    const links = await this.#ask(rtnetlink.writeLinkDump, rtnetlink.readLink, signal);
    return new Map(links.map(({ index, name }) => [index, name]));
  }

  async #change(
    verb: "add" | "remove",
    link: string,
    asked: readonly AddressToRemove[],
  ): Promise<readonly LinkAddressFailure[]> {
    const addresses = asked.map(withPrefixLength);
    if (addresses.length === 0) return [];
    const found = await this.link(link);
    if (found === undefined) return addresses.map(({ address }) => linkFailure(verb, link, address, "ENODEV"));
    const messages = new MessageBuffer();
    for (const { address, prefixLength } of addresses) {
      rtnetlink.writeAddress(messages, verb, found.index, address, prefixLength);
    }
    const failures: LinkAddressFailure[] = [];
    for (const { code, facts } of await this.#socket.exchange(messages)) {
      const { address } = addresses[facts.request?.index ?? -1] ?? {};
      if (address === undefined || code === DONE_ALREADY[verb]) continue;
      failures.push(linkFailure(verb, link, address, code));
    }
    return failures;
  }

  #ask<T>(
    write: (messages: MessageBuffer) => void,
    read?: (reply: Reply) => T | undefined,
    signal?: AbortSignal,
  ): Promise<T[]> {
    return answersTo(this.#socket, write, read, { signal });
  }
}
