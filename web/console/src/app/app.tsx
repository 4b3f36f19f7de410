import { QueryClientProvider } from '@tanstack/react-query'
import { createBrowserRouter } from 'react-router'
import { RouterProvider } from 'react-router/dom'
import { queries, whoAmI } from './queries'
import { routes } from './routes'

void queries.prefetchQuery(whoAmI) // while the parts of the page are still being read
const router = createBrowserRouter(routes)

export function App() {
  return (
    <QueryClientProvider client={queries}>
      <RouterProvider router={router} />
    </QueryClientProvider>
  )
}
