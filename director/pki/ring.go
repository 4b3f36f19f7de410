package pki

import "slices"

// Ring are the keys of a cluster for one purpose, while one follows another. The methods change nothing if what they
// are to do is done, so a step that was cut off can be run again.
type Ring[K Named] struct {
	Keys   []K      `json:"keys"`             // the first signs; what each has signed is accepted
	Former []string `json:"former,omitempty"` // names of those that are refused
}

// Named is a key with a name that is never used again.
type Named interface{ KeyName() string }

// Has reports whether there is a key of the name.
func (r Ring[K]) Has(name string) bool { return indexOf(r.Keys, name) >= 0 }

// Add takes up a key that is accepted and signs nothing yet.
func (r *Ring[K]) Add(key K) {
	if !r.Has(key.KeyName()) {
		r.Keys = append(slices.Clone(r.Keys), key)
	}
}

// Use has the key of the name sign. It reports whether there is one.
func (r *Ring[K]) Use(name string) (ok bool) {
	r.Keys, ok = first(r.Keys, name)
	return ok
}

// Drop forgets all keys but the one that signs.
func (r *Ring[K]) Drop() {
	former := slices.Clone(r.Former)
	for _, one := range r.Keys[1:] {
		former = append(former, one.KeyName())
	}
	r.Keys, r.Former = r.Keys[:1:1], former
}

// Names returns the names of the keys, the one that signs first.
func (r Ring[K]) Names() (names []string) {
	for _, one := range r.Keys {
		names = append(names, one.KeyName())
	}
	return names
}

func indexOf[K Named](keys []K, name string) int {
	return slices.IndexFunc(keys, func(k K) bool { return k.KeyName() == name })
}

// first returns the keys with that of the name in front, and whether it is there.
func first[K Named](keys []K, name string) ([]K, bool) {
	i := indexOf(keys, name)
	if i < 0 {
		return keys, false
	}
	return slices.Concat(keys[i:i+1], keys[:i], keys[i+1:]), true
}
