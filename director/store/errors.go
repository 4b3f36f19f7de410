package store

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/mattn/go-sqlite3"
	"gorm.io/gorm"

	"github.com/director-kaas/kaas/director"
)

// dbError classifies what the database said about object.
func dbError(op, object string, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*director.Error](err); ok {
		return err
	}
	switch {
	case errors.Is(err, gorm.ErrRecordNotFound):
		return director.Errorf(director.KindNotFound, op, "there is no %s", object)
	case errors.Is(err, gorm.ErrDuplicatedKey):
		return &director.Error{Kind: director.KindConflict, Op: op, Msg: object + " exists already", Err: err}
	case errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, context.DeadlineExceeded) && !connecting(err): // a connection has a deadline of its own
		return err
	}
	e := &director.Error{Kind: director.KindInternal, Op: op, Msg: "the database failed on " + object, Err: err}
	if f := faultOf(err); f != (fault{}) {
		e.Kind, e.Msg, e.Hint = f.kind, f.msg, f.hint
		if f == diskFull {
			e.Err = errors.Join(syscall.ENOSPC, err) // what every full disk is known by
		}
	}
	return e
}

// fault is a state of the database that is no defect of ours.
type fault struct {
	kind      director.Kind
	msg, hint string
}

var (
	diskFull = fault{
		director.KindExhausted, "the database cannot write",
		"free space on the database's disk; nothing was lost, and the plan continues by itself",
	}
	locked = fault{
		director.KindUnavailable, "the database is locked by another process",
		"end whatever else has the database open, such as a backup or a shell; the plan continues by itself",
	}
	readOnly = fault{
		director.KindUnavailable, "the database can only be read",
		"check the permissions of its files; for PostgreSQL name the primary in database, not a standby",
	}
	noConnection = fault{
		director.KindUnavailable, "the database cannot be reached",
		"check that the PostgreSQL server runs and can be reached from the director; the plan continues by itself",
	}
	crowded = fault{
		director.KindUnavailable, "the database has too many connections",
		"raise max_connections of the server, or lower pool_max_conns in database",
	}
)

// faultOf returns the fault that err tells of, or none.
func faultOf(err error) fault {
	if se, ok := errors.AsType[sqlite3.Error](err); ok {
		switch se.Code {
		case sqlite3.ErrFull, sqlite3.ErrIoErr:
			return diskFull
		case sqlite3.ErrBusy, sqlite3.ErrLocked:
			return locked
		case sqlite3.ErrReadonly, sqlite3.ErrPerm, sqlite3.ErrCantOpen:
			return readOnly
		}
		return fault{}
	}
	if pe, ok := errors.AsType[*pgconn.PgError](err); ok {
		return faultOfPostgres(pe.Code)
	}
	_, network := errors.AsType[net.Error](err)
	switch {
	case connecting(
		err,
	), network, errors.Is(err, driver.ErrBadConn), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF),
		strings.Contains(err.Error(), "conn closed"): // pgx has no exported error for a connection that ended meanwhile
		return noConnection
	}
	return fault{}
}

func connecting(err error) bool {
	_, ok := errors.AsType[*pgconn.ConnectError](err)
	return ok
}

// faultOfPostgres reads an SQLSTATE, see the appendix of PostgreSQL's manual.
func faultOfPostgres(code string) fault {
	switch {
	case code == "53100":
		return diskFull
	case code == "53300":
		return crowded
	case code == "55P03", code == "40001", code == "40P01":
		return locked
	case code == "25006":
		return readOnly
	// 08 and 57P: the connection or the server went away. 25P03: it took this session for a stopped director.
	case strings.HasPrefix(code, "08"), strings.HasPrefix(code, "57P"), code == "25P03":
		return noConnection
	}
	return fault{}
}
