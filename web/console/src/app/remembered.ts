// What a browser remembers of a person's choices. It may refuse to store anything: a choice then holds until the page
// is loaded again.
const here = new Map<string, string>()

export function remembered(key: string): string | undefined {
  try {
    return localStorage.getItem(key) ?? here.get(key)
  } catch {
    return here.get(key)
  }
}

export function remember(key: string, value: string): void {
  here.set(key, value)
  try {
    localStorage.setItem(key, value)
  } catch {
    // it is remembered here
  }
}
