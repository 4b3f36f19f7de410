import { Content } from '@patternfly/react-core'
import { Ask } from '../ui/ask'
import { Command } from '../ui/command'

interface DeleteImportedProps {
  title: string
  verb: string
  what: string // is deleted
  command: string
  act: () => Promise<unknown>
  close: () => void
}

// DeleteImported deletes the file of an image or a release bundle, which the director refuses while it is needed.
export function DeleteImported({ title, verb, what, command, act, close }: DeleteImportedProps) {
  return (
    <Ask title={title} verb={verb} danger close={close} act={act}>
      <Content component="p">
        The imported {what} goes from the director. While a document or a plan needs it, it stays, and the director says
        which.
      </Content>
      <Command>{command}</Command>
    </Ask>
  )
}
