import { QueryClient, QueryClientProvider } from '@tanstack/react-query'
import { createBrowserRouter } from 'react-router'
import { RouterProvider } from 'react-router/dom'
import { problemOf } from '../api/problem'
import { routes } from './routes'

export const queries = new QueryClient({
  defaultOptions: {
    queries: {
      // Events say what has changed: keepFresh. Without them, what is older than this is asked for again.
      staleTime: 30_000,
      refetchInterval: (q) => (q.state.status === 'error' ? 5000 : false),
      // A director that starts again answers soon; what it refuses, it refuses again.
      retry: (failures, err) => problemOf(err).status === 0 && failures < 2,
      networkMode: 'always', // an air-gapped browser says that it is offline
    },
    mutations: { networkMode: 'always' },
  },
})

const router = createBrowserRouter(routes)

export function App() {
  return (
    <QueryClientProvider client={queries}>
      <RouterProvider router={router} />
    </QueryClientProvider>
  )
}
