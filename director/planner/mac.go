package planner

import (
	"crypto/sha256"
	"fmt"
	"strconv"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
)

// macTries bounds how many addresses are derived for an adapter. With half of all addresses taken, it takes more than
// that once in 2^64 adapters.
const macTries = 64

// macs gives new adapters addresses that no other adapter has. Hashes have 24 bits, so two of a few thousand adapters
// are likely to have the same one.
type macs struct {
	taken map[string]bool
	hash  func(string) [3]byte
}

// macs returns what gives addresses to the adapters of one plan.
func (w World) macs() macs {
	m := macs{taken: make(map[string]bool, len(w.MACs)), hash: w.macHash}
	for mac := range w.MACs {
		m.taken[mac] = true
	}
	if m.hash == nil {
		m.hash = macHash
	}
	return m
}

// give derives the address of a new adapter. The same id and the same taken addresses give the same address.
func (m macs) give(id string) string {
	mac := macOf(m.hash, id, 0)
	for n := 1; m.taken[mac] && n < macTries; n++ {
		mac = macOf(m.hash, id, n)
	}
	m.taken[mac] = true
	return mac
}

// macOf derives the n-th address of the adapter: locally administered, in QEMU's range.
func macOf(hash func(string) [3]byte, id string, n int) string {
	text := "mac/" + id
	if n > 0 {
		text += "#" + strconv.Itoa(n)
	}
	sum := hash(text)
	return fmt.Sprintf("52:54:00:%02x:%02x:%02x", sum[0], sum[1], sum[2])
}

func macHash(text string) [3]byte {
	sum := sha256.Sum256([]byte(text))
	return [3]byte(sum[:3])
}

// macAmong returns the first address of the adapter that the VM has, and the first one of all if it has none of them.
// has may be nil.
func macAmong(id string, has func(mac string) bool) string {
	for n := 0; has != nil && n < macTries; n++ {
		if mac := macOf(macHash, id, n); has(mac) {
			return mac
		}
	}
	return macOf(macHash, id, 0)
}

// furtherNICs are the further adapters that a machine of that id has by the document, without addresses.
func furtherNICs(id string, vm model.VMModel, mac func(id string) string) []director.NIC {
	var nics []director.NIC
	for _, i := range vm.Further() {
		nics = append(nics, director.NIC{Role: i.Role, Network: i.Network, MAC: mac(id + "/" + i.Role)})
	}
	return nics
}
