package store

import (
	"context"

	"github.com/director-kaas/kaas/director"
)

// Backup writes the database as it is at this moment into a new file, while others read and write. The file is a
// database that a director can start on. Secrets in it are sealed, and the key to them was never in the database.
// Errors: conflict if the file is there, exhausted if the disk is full, invalid for a database that has its own means.
func (s *database) Backup(ctx context.Context, path string) error {
	const op = "store.backup"
	if name := s.read.Name(); name != "sqlite" {
		return director.Errorf(director.KindInvalid, op, "a %s database is not backed up by the director", name).
			WithHint("use the database's own tools, such as pg_dump; suspend this schedule")
	}
	// A snapshot of one read transaction: in WAL mode it holds up no writer.
	if err := s.read.WithContext(ctx).Exec("VACUUM INTO ?", path).Error; err != nil {
		return dbError(op, "the backup "+path, err)
	}
	return nil
}
