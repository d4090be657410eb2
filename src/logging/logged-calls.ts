/** Prints what a mode sends to the kernel, at verbosity 9: upstream prints its rules there. */
import type { Logger } from "./logger.ts";

/**
 * An object with the same methods, of which some print their arguments before they are called.
 *
 * @param methods those that write; the others stay silent.
 */
export function withLoggedCalls<T extends object>(
  target: T,
  methods: readonly (keyof T & string)[],
  message: string,
  log: Logger,
): T {
  return new Proxy(target, {
    get(_, name) {
      const member: unknown = Reflect.get(target, name, target);
      if (typeof member !== "function") return member;
      const isLogged = methods.some((method) => method === name);
      return (...args: unknown[]): unknown => {
        if (isLogged && log.isVerbose(9)) log.v(9, message, { call: String(name), args });
        return Reflect.apply(member, target, args);
      };
    },
  });
}
