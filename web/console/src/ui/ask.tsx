import { Button, Form, Modal, ModalBody, ModalFooter, ModalHeader, type ButtonProps } from '@patternfly/react-core'
import { useId, useState, type FormEvent, type ReactNode } from 'react'
import { ProblemAlert } from './problem'

interface AskProps {
  title: string
  verb: string // what the button that does it says
  danger?: boolean
  ready?: boolean // all that is needed is filled in
  act: () => Promise<unknown>
  close: () => void
  children?: ReactNode
}

// Ask is a dialog for one action. It stays open, with what was filled in, until the action is done.
export function Ask({ title, verb, danger, ready = true, act, close, children }: AskProps) {
  const [busy, setBusy] = useState(false)
  const [failed, setFailed] = useState<unknown>()
  const id = useId()
  const submit = async (e: FormEvent) => {
    e.preventDefault()
    if (!ready || busy) return
    setBusy(true)
    setFailed(undefined)
    try {
      await act()
      close()
    } catch (err) {
      setFailed(err)
      setBusy(false)
    }
  }
  return (
    <Modal isOpen variant="medium" onClose={close} aria-labelledby={`${id}-title`}>
      <ModalHeader title={title} labelId={`${id}-title`} />
      <ModalBody tabIndex={0}>
        <Form id={id} onSubmit={(e) => void submit(e)}>
          {children}
          {failed !== undefined && <ProblemAlert of={failed} />}
        </Form>
      </ModalBody>
      <ModalFooter>
        <Button type="submit" form={id} variant={danger ? 'danger' : 'primary'} isDisabled={!ready} isLoading={busy}>
          {verb}
        </Button>
        <Button variant="link" onClick={close}>
          Cancel
        </Button>
      </ModalFooter>
    </Modal>
  )
}

// AskButton opens the dialog that its function renders.
export function AskButton({ children, ask, ...rest }: ButtonProps & { ask: (close: () => void) => ReactNode }) {
  const [open, setOpen] = useState(false)
  return (
    <>
      <Button {...rest} onClick={() => setOpen(true)}>
        {children}
      </Button>
      {open && ask(() => setOpen(false))}
    </>
  )
}
