/** Service ports that a node serves as they last were, although its objects ask for something else. */
import type { Endpoint } from "./endpoint.ts";
import type { ServicePort } from "./service-port.ts";

/** A service port with its endpoints. */
export interface RoutedPort {
  readonly port: ServicePort;
  readonly endpoints: readonly Endpoint[];
}

/** What a daemon keeps against the objects. */
export interface StandingPort {
  /** {@link ServicePortName.key} */
  readonly servicePort: string;
  readonly family: string;
  readonly reason: string;
  /** As it last was in force; undefined: not at all, as far as the daemon knows. */
  readonly inForce: RoutedPort | undefined;
}

/** The service ports that the daemon of one node keeps as they were. @default not known */
export interface WithStanding {
  readonly standing?: { readonly node: string; readonly ports: readonly StandingPort[] };
}
