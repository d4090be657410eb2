/** Service ports as tests of proxy modes declare them one by one, with the owners of frontends that the model makes of them. */
import { runAtOnce } from "../../async/steps.ts";
import { OwnedServices } from "../owned-services.ts";
import type { ServicePort } from "../service-port.ts";

export class DeclaredServices {
  readonly #declared = new Map<string, ServicePort>();
  readonly #owned = new OwnedServices();

  /** What a mode gets; live. */
  get services(): ReadonlyMap<string, ServicePort> {
    return this.#owned.services;
  }

  /** As they were declared; live. */
  get declared(): ReadonlyMap<string, ServicePort> {
    return this.#declared;
  }

  /** @returns the keys of service ports that a mode must be told of. */
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
