/** Tells when an address of this network namespace comes or goes. One subscription, however many want to know. */
import { NETLINK_ROUTE } from "../netlink/constants.ts";
import { subscribe } from "../netlink/subscription.ts";
import { RTNLGRP_IPV4_IFADDR, RTNLGRP_IPV6_IFADDR } from "./rtnetlink.ts";

interface Listener {
  readonly onChange: () => void;
  readonly fail: (error: unknown) => void;
}

/** Of either family; a change is told once or more often, never too seldom. */
export class AddressWatch {
  readonly #listeners = new Set<Listener>();
  #stop = new AbortController();

  /** Calls back until the signal aborts, and then resolves. Rejects when the kernel does not let us listen (any more). */
  watch(onChange: () => void, signal: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      if (signal.aborted) {
        resolve();
        return;
      }
      const leave = (): void => {
        this.#listeners.delete(listener);
        signal.removeEventListener("abort", end);
        if (this.#listeners.size === 0) this.#stop.abort();
      };
      const end = (): void => {
        leave();
        resolve();
      };
      const fail = (error: unknown): void => {
        leave();
        reject(error);
      };
      const listener: Listener = { onChange, fail };
      signal.addEventListener("abort", end);
      this.#listeners.add(listener);
      if (this.#listeners.size === 1) this.#start();
    });
  }

  #start(): void {
    this.#stop = new AbortController();
    const tell = (): void => {
      for (const { onChange } of [...this.#listeners]) onChange();
    };
    subscribe({
      protocol: NETLINK_ROUTE,
      groups: [RTNLGRP_IPV4_IFADDR, RTNLGRP_IPV6_IFADDR],
      onMessage: tell,
      onOverrun: tell,
      signal: this.#stop.signal,
      receiveBufferBytes: 256 * 1024,
    }).catch((error: unknown) => {
      for (const { fail } of [...this.#listeners]) fail(error);
    });
  }
}
