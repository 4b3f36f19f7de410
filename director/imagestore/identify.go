package imagestore

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"os"

	"github.com/director-kaas/kaas/director"
)

// randomID is the id of an upload whose checksum is not known. It looks like one, and is none.
func randomID() string {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// movedTo is the id that the upload has by now. A sender that did not hear of its checksum finds the upload again, as
// long as the director runs.
func (s *Store) movedTo(id string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if to, ok := s.moved[id]; ok {
		return to
	}
	return id
}

// identify computes the checksum of an upload that was begun without one, and makes it its id. One with this checksum
// that was there before is replaced unless it is whole itself. A crash at any line leaves the upload at its old id, or
// at the new one.
func (s *Store) identify(ctx context.Context, u Upload) (Upload, error) {
	release, err := s.hold(u.ID)
	if err != nil {
		return u, err
	}
	defer release()
	sum, err := checksum(ctx, s.data(u.ID), func(int64, int64) {})
	if err != nil {
		return u, director.Errorf(director.KindUnavailable, opUpload, "the checksum could not be computed: %w", err).
			WithHint("send an empty piece at %d", u.Size)
	}
	if sum == u.ID { // a director died in rekey
		if err := s.checked(u, sum); err != nil {
			return u, err
		}
		return s.Upload(sum)
	}
	held, err := s.hold(sum)
	if err != nil {
		return u, err
	}
	defer held()
	s.beginning.Lock()
	defer s.beginning.Unlock()
	there, err := s.Upload(sum)
	switch {
	case err == nil && there.Offset == there.Size:
		err = s.drop(u.ID)
	case err == nil || director.KindOf(err) == director.KindNotFound:
		err = s.rekey(u, sum)
	}
	if err != nil {
		return u, err
	}
	s.mu.Lock()
	if len(s.moved) >= mostMoved {
		clear(s.moved) // a convenience for those whose answer was lost, and no more
	}
	s.moved[u.ID] = sum
	s.mu.Unlock()
	return s.Upload(sum)
}

// mostMoved bounds what is remembered of former ids.
const mostMoved = 1000

// rekey moves the upload to its checksum. The record says that it is checked only after the move: one that is found at
// a checksum and says that it is not was moved by a director that died then.
func (s *Store) rekey(u Upload, sum string) error {
	if err := s.drop(sum); err != nil {
		return err
	}
	if err := os.Rename(s.path("uploads", u.ID), s.path("uploads", sum)); err != nil {
		return broken(err)
	}
	return s.checked(u, sum)
}

// checked writes that the upload has its checksum as its id.
func (s *Store) checked(u Upload, sum string) error {
	is := record{Name: u.Name, Size: u.Size, By: u.By, Release: u.Release}
	if err := s.save("uploads/"+sum+"/record.json", is); err != nil {
		return broken(err)
	}
	return nil
}
