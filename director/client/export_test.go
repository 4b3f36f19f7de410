package client

import "time"

// SetBackoff makes the waits between tries as long as d.
func SetBackoff(c *Client, d time.Duration) { c.backoff = func(int) time.Duration { return d } }
