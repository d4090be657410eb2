/** Service ports that tests of proxy modes declare one by one, with the frontend owners that the model computes. */
import { runAtOnce } from "../../async/turns.ts";
import { OwnedServices } from "../owned-services.ts";
import type { ServicePort } from "../service-port.ts";

export class DeclaredServices {
  readonly #declared = new Map<string, ServicePort>();
  readonly #owned = new OwnedServices();

  /** The input of a mode; live. */
  get services(): ReadonlyMap<string, ServicePort> {
    return this.#owned.services;
  }

  /** As declared; live. */
  get declared(): ReadonlyMap<string, ServicePort> {
    return this.#declared;
  }

  /** @returns the keys of service ports that a mode must be notified about. */
  set(port: ServicePort): ReadonlySet<string> {
    this.#declared.set(port.name.key, port);
    return this.#update(port.name.key);
  }

  delete(key: string): ReadonlySet<string> {
    this.#declared.delete(key);
    return this.#update(key);
  }

  #update(key: string): ReadonlySet<string> {
    return new Set([key, ...runAtOnce(this.#owned.update([key], this.#declared)).changedPorts]);
  }
}
