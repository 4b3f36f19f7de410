import { ClipboardCopy } from '@patternfly/react-core'

// Command is what does the same on the command line.
export function Command({ children }: { children: string }) {
  return (
    <ClipboardCopy isReadOnly isCode hoverTip="Copy" clickTip="Copied" textAriaLabel="The same with directorctl">
      {children}
    </ClipboardCopy>
  )
}

// flag is a flag of a command, for a text that is not empty.
export const flag = (name: string, text: string) => (text === '' ? '' : ` --${name} ${quoted(text)}`)

// atOnce is an entry of a menu that acts without a dialog: the command is below its name.
export function atOnce(title: string, command: string, onClick: () => void) {
  return { title, description: <code className="break">{command}</code>, onClick }
}

// quoted is a text as an argument of a shell.
export function quoted(text: string): string {
  return /^[A-Za-z0-9_./:=@%+,-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`
}
