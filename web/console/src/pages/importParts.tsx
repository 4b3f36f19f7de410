// What the imports of images and of release bundles have in common.
import { Button, FormGroup, FormSelect, FormSelectOption, Progress, TextInput } from '@patternfly/react-core'
import { useEffect, useRef, useState } from 'react'
import type { Stage } from '../forms/bring'
import { Actions } from '../ui/actions'
import { size } from '../ui/size'

export type Trust = 'signed' | 'unsigned'

// reasoned reports whether a reason has the three words that the director asks for.
export const reasoned = (reason: string) => reason.trim().split(/\s+/).length >= 3

interface TrustProps {
  id: string // of this form, as the beginning of the fields' ids
  of: Trust
  set: (t: Trust) => void
  busy: boolean
}

export function TrustField({ id, of, set, busy }: TrustProps) {
  return (
    <FormGroup label="Trust" fieldId={`${id}-trust`}>
      <FormSelect id={`${id}-trust`} value={of} isDisabled={busy} onChange={(_, v) => set(v as Trust)}>
        <FormSelectOption value="signed" label="It is signed with a trusted key" />
        <FormSelectOption value="unsigned" label="It has no signature" />
      </FormSelect>
    </FormGroup>
  )
}

export function ReasonField({ id, of, set }: { id: string; of: string; set: (reason: string) => void }) {
  return (
    <FormGroup label="Why it is used without a signature, in three words or more" fieldId={`${id}-reason`} isRequired>
      <TextInput id={`${id}-reason`} isRequired value={of} onChange={(_, v) => set(v)} />
    </FormGroup>
  )
}

// stopped is why the person's Stop ends an import, and not that the page was left.
export const stopped = new Error('The import was stopped.')

// useImport runs one part of an import at a time. Leaving the page, or stop, ends it without an error.
export function useImport() {
  const [stage, setStage] = useState<Stage>()
  const [failed, setFailed] = useState<unknown>()
  const abort = useRef<AbortController>(undefined)
  useEffect(() => () => abort.current?.abort(), [])
  const run = async (act: (signal: AbortSignal, show: (s: Stage) => void) => Promise<void>) => {
    const control = new AbortController()
    abort.current = control
    setFailed(undefined)
    try {
      await act(control.signal, setStage)
    } catch (err) {
      if (!control.signal.aborted) setFailed(err)
    } finally {
      setStage(undefined)
    }
  }
  return { stage, failed, run, stop: () => abort.current?.abort(stopped) }
}

export function StageBar({ of }: { of: Stage }) {
  return (
    <Progress
      aria-label="Import"
      title={of.text}
      label={of.total ? `${size(of.done)} of ${size(of.total)}` : ' '}
      value={of.total ? Math.floor((100 * of.done) / of.total) : 0}
    />
  )
}

export function ImportActions({ ready, stage, stop }: { ready: boolean; stage: Stage | undefined; stop: () => void }) {
  return (
    <Actions>
      <Button type="submit" isDisabled={!ready || stage !== undefined} isLoading={stage !== undefined}>
        Import
      </Button>
      {stage && (
        <Button variant="secondary" onClick={stop}>
          Stop
        </Button>
      )}
    </Actions>
  )
}
