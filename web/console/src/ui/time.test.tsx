// @vitest-environment jsdom
import { act, cleanup, render, screen } from '@testing-library/react'
import { afterEach, expect, test, vi } from 'vitest'
import { Time } from './time'

afterEach(() => {
  cleanup()
  vi.useRealTimers()
})

test('a time that is shown alone begins at the right distance, and moves on', () => {
  vi.useFakeTimers({ now: new Date('2030-01-01T00:00:00Z') })
  const at = '2029-12-31T23:59:00Z'
  const first = render(<Time at={at} />)
  expect(screen.getByText('1 min ago')).toBeDefined()
  first.unmount()

  vi.setSystemTime(new Date('2030-01-01T00:01:00Z'))
  render(<Time at={at} />)
  expect(screen.getByText('2 min ago')).toBeDefined()
  act(() => vi.advanceTimersByTime(60_000))
  expect(screen.getByText('3 min ago')).toBeDefined()
})

test('what is no time is shown as it is', () => {
  render(<Time at="soon" />)
  expect(screen.getByText('soon')).toBeDefined()
  cleanup()
  render(<Time at={undefined} />)
  expect(screen.getByText('–')).toBeDefined()
})
