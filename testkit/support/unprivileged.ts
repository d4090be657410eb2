/**
 * A command in front of others that makes them another user's, without privilege. They may only read all files: the checkout may be
 * where others may not enter.
 */
export const UNPRIVILEGED = [
  "setpriv",
  "--reuid=65534",
  "--regid=65534",
  "--clear-groups",
  "--inh-caps=-all,+dac_read_search",
  "--ambient-caps=+dac_read_search",
  "--",
] as const;
