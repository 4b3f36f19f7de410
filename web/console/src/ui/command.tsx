import { ClipboardCopy } from '@patternfly/react-core'

// Command is what does the same on the command line.
export function Command({ children }: { children: string }) {
  return (
    <ClipboardCopy isReadOnly isCode hoverTip="Copy" clickTip="Copied" textAriaLabel="The same with directorctl">
      {children}
    </ClipboardCopy>
  )
}

// quoted is a text as an argument of a shell.
export function quoted(text: string): string {
  return /^[A-Za-z0-9_./:=@%+,-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`
}
