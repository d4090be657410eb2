/**
 * The name syntaxes of Kubernetes (RFC 1123 label and subdomain, label value). Every text that may end up in a rule's
 * comment, a set's name or a log line is checked against one of them, so it has no space, quote, line break or flag.
 */

const LABEL = /^[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?$/;
const SUBDOMAIN = /^[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*$/;
const LABEL_VALUE = /^(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$/;

/** The rule of {@link isDnsLabel}, for messages. */
export const DNS_LABEL_RULE =
  "must be a DNS label: 1 to 63 lower-case letters, digits or '-', beginning and ending with a letter or digit";
/** The rule of {@link isDnsSubdomain}, for messages. */
export const DNS_SUBDOMAIN_RULE =
  "must be a DNS subdomain: up to 253 lower-case letters, digits, '-' or '.', each part beginning and ending with a letter or digit";
/** The rule of {@link isLabelValue}, for messages. */
export const LABEL_VALUE_RULE =
  "must be a label value: up to 63 letters, digits, '-', '_' or '.', beginning and ending with a letter or digit";

export function isDnsLabel(text: string): boolean {
  return LABEL.test(text);
}

export function isDnsSubdomain(text: string): boolean {
  return text.length <= 253 && SUBDOMAIN.test(text);
}

/** Whether the text is a valid label value; the empty string is. */
export function isLabelValue(text: string): boolean {
  return LABEL_VALUE.test(text);
}
