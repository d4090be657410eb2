/** Removes secrets from text by their form. If in doubt, it removes too much. */

export const LEFT_OUT = "(left out)";

type Replacement = readonly [pattern: RegExp, by: string];

/** What is a secret in any context. */
const CREDENTIALS: readonly Replacement[] = [
  // The body may be base64url, which has dashes.
  [/-----BEGIN [A-Z0-9 ]+-----(?:(?!-----END ).)*(?:-----END [A-Z0-9 ]+-----)?/gs, LEFT_OUT],
  // A port may have this name: then nothing separates it from what follows.
  [/\b(authorization|cookie)(\\*["']\s*[:=][\s[]*\\*["']?|\s*=\s*|\s*:\s+)[^\n"'\\]+/gi, `$1$2${LEFT_OUT}`],
  [/\b(bearer|negotiate|digest|basic)(\s+)(?=[\w.~+/=-]*[\d=.])[\w.~+/=-]{6,}/gi, `$1$2${LEFT_OUT}`],
  [/\b(Bearer|Negotiate|Basic)(\s+)[\w.~+/=-]{8,}/g, `$1$2${LEFT_OUT}`],
  [/\beyJ[\w-]{4,}(?:\.[\w-]*){0,4}/g, LEFT_OUT],
  [/\bsha256~[\w-]{16,}/g, LEFT_OUT],
  // GitHub, GitLab, Slack, AWS, Google, and what others begin like them.
  [/\b(?:gh[a-z]_|github_pat_|glpat-|xox[a-z]-|sk-|hv[sb]\.|npm_|dop_v1_)[\w.-]{12,}/g, LEFT_OUT],
  [/\b(?:AKIA|ASIA)[A-Z0-9]{12,}\b|\bAIza[\w-]{20,}|\bya29\.[\w-]{10,}/g, LEFT_OUT],
  [/\b[a-z0-9]{6}\.[a-z0-9]{16}\b/g, LEFT_OUT],
  // A password may have any character: what is before the last @ of the word goes.
  [/(\b[a-z][a-z0-9+.-]{0,20}:\/\/)(?:[^\s"\\]|\\.){0,2000}@/gi, `$1${LEFT_OUT}@`],
  [
    /([?&](?:[\w-]*(?:token|key|secret|pass|sig|credential|auth)[\w-]*|code|pwd)=)(?!\(left out\))[^&\s"'#]+/gi,
    `$1${LEFT_OUT}`,
  ],
];

const WORDS =
  "token|passw(?:or)?d|passphrase|secret|(?:api|access|ssh|private|encryption|signing)[-_]?key|credential|key-data|certificate-data|authority-data";
const SHORT_WORDS = "pass|pwd|otp";
/** Between a name and its value, as programs and people write it. */
const SEPARATOR =
  "(?:\\\\*[\"'])?(?:\\s*(?:->|=>|:=|[=:\\uff1a]|&#(?:58|61|x3a|x3d);|&(?:colon|equals);)\\s*(?:[>|][-+0-9]{0,2}[ \\t]*\\r?\\n\\s*)?|\\s+(?:is|was)\\s+|\\s+)";
const VALUE = "(?:\\\\*\"(?:[^\"\\\\\\n]|\\\\[^\"\\n])*|\\\\*'(?:[^'\\n]|'')*|[^\\s&,;\"')}\\]\\\\]+)";
/** Values that a text calls a secret; and long base64 texts, such as keys and certificates. */
const NAMED: readonly Replacement[] = [
  [new RegExp(`((?:${WORDS})[\\w-]{0,200}${SEPARATOR})(?!must\\b|\\(left out\\))${VALUE}`, "gi"), `$1${LEFT_OUT}`],
  [
    new RegExp(`((?<![A-Za-z])(?:${SHORT_WORDS})(?:\\\\*["'])?\\s*[=:]\\s*)(?!\\(left out\\))${VALUE}`, "gi"),
    `$1${LEFT_OUT}`,
  ],
  [/[A-Za-z0-9+/]{100,}={0,2}/g, LEFT_OUT],
];

/** Text from logs, configuration or other programs without secrets. */
export function withoutSecrets(text: string): string {
  return replaced(withoutCredentials(text), NAMED);
}

/** The same for text in which words such as `token:` may be names of objects: removes only what is a secret in any context. */
export function withoutCredentials(text: string): string {
  const rest = replaced(text, CREDENTIALS);
  return rest.includes("-----END ") ? rest.replace(END_OF_KEY, ` ${LEFT_OUT}`) : rest;
}

/** A URL, or what should be one, without user name and password: these end at the last `@`. @param instead stands there */
export function withoutUserInfo(url: string, instead = ""): string {
  return url.replace(/^([a-z][a-z0-9+.-]*:(?:\/\/)?)?.*@/is, `$1${instead}`);
}

/** A log may begin in the middle of a key. */
const END_OF_KEY = /(?:^|\s)(?:[\w+/=-]{1,100}\s+){0,100}-----END [A-Z0-9 ]+-----/g;

function replaced(text: string, replacements: readonly Replacement[]): string {
  return replacements.reduce((rest, [pattern, by]) => rest.replace(pattern, by), text);
}
