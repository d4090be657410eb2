/**
 * Removes secrets from what goes into an archive: by field names, and by the form of secrets in text. If in doubt, it
 * removes too much.
 */

const LEFT_OUT = "(left out)";

/** Fields whose value is a secret, or a certificate. */
const SECRET_FIELD =
  /token|passw|secret|credential|authorization|cookie|private|bearer|signature|api-?key|(?:^|[-_.])key$|-data$|^extensions$|^annotations$/i;
/** Fields that name the file with the secret. */
const FILE_FIELD = /^(?:tokenFile|client-key|client-certificate|certificate-authority|tls[a-z]*File)$/i;
const PATH = /^[./][\w./@:+-]{0,200}$/;

/**
 * A value of JSON or YAML without secrets: those in fields with telling names, in an exec plugin's environment and arguments, in an
 * `auth-provider`, and in any text where {@link withoutSecrets} finds them.
 */
export function redacted(value: unknown, field = ""): unknown {
  if (FILE_FIELD.test(field) && typeof value === "string" && PATH.test(value)) return value;
  if (SECRET_FIELD.test(field) && value !== null && value !== "" && typeof value !== "boolean") return LEFT_OUT;
  if (field === "auth-provider" && typeof value === "object" && value !== null) return LEFT_OUT;
  if (Array.isArray(value)) {
    if (field === "args") return value.length === 0 ? [] : [`${value.length} ${LEFT_OUT}`];
    if (field === "env") return value.map(environmentName);
    return value.map((item) => redacted(item));
  }
  if (typeof value === "object" && value !== null) {
    return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, redacted(item, name)]));
  }
  return typeof value === "string" ? withoutSecrets(value) : value;
}

function environmentName(item: unknown): unknown {
  const name = typeof item === "object" && item !== null && "name" in item ? item.name : undefined;
  return typeof name === "string" ? { name: withoutSecrets(name), value: LEFT_OUT } : LEFT_OUT;
}

type Replacement = readonly [pattern: RegExp, by: string];

/** What is a secret in any context. */
const CREDENTIALS: readonly Replacement[] = [
  [/-----BEGIN [A-Z0-9 ]+-----[^-]*(?:-----END [A-Z0-9 ]+-----)?/g, LEFT_OUT],
  [/\b(authorization|cookie)((?:\\*["'])?\s*[:=]\s*)[^\n"'\\]+/gi, `$1$2${LEFT_OUT}`],
  [/\b([Bb]earer|BEARER|Basic)\s+[\w.~+/=-]{8,}/g, `$1 ${LEFT_OUT}`],
  [/\beyJ[\w-]{8,}(?:\.[\w-]*){0,2}/g, LEFT_OUT],
  [/\bsha256~[\w-]{16,}/g, LEFT_OUT],
  [/\b[a-z0-9]{6}\.[a-z0-9]{16}\b/g, LEFT_OUT],
  [/(\b[a-z][a-z0-9+.-]{0,20}:\/\/)[^\s/@"']+@/gi, `$1${LEFT_OUT}@`],
  [/([?&][\w-]*(?:token|key|secret|passw\w*|sig|signature|credential|auth)[\w-]*=)[^&\s"'#]+/gi, `$1${LEFT_OUT}`],
];

const WORDS = "token|passw(?:or)?d|secret|api-?key|credential|private-?key|key-data|certificate-data|authority-data";
/** Values that a text calls a secret; and long base64 texts, such as keys and certificates. */
const NAMED: readonly Replacement[] = [
  [
    new RegExp(
      `((?:${WORDS})[\\w-]{0,200}(?:\\\\*["'])?(?:\\s*[=:]\\s*|\\s+))(?:\\\\*["'][^"'\\\\\\n]*|[^\\s&,;"')}\\]\\\\]+)`,
      "gi",
    ),
    `$1${LEFT_OUT}`,
  ],
  [/[A-Za-z0-9+/]{100,}={0,2}/g, LEFT_OUT],
];

/** Text from logs or configuration without secrets. */
export function withoutSecrets(text: string): string {
  return replaced(withoutCredentials(text), NAMED);
}

/** The same for text in which words such as `token:` may be names of objects: removes only what is a secret in any context. */
export function withoutCredentials(text: string): string {
  return replaced(text, CREDENTIALS);
}

function replaced(text: string, replacements: readonly Replacement[]): string {
  return replacements.reduce((rest, [pattern, by]) => rest.replace(pattern, by), text);
}
