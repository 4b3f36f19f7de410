-- Users can be disabled. A time of 0 means never. password_at is 0 for passwords that an older director has set: updated_at counts for them.
ALTER TABLE users ADD COLUMN disabled_at BIGINT NOT NULL DEFAULT 0;
ALTER TABLE users ADD COLUMN password_at BIGINT NOT NULL DEFAULT 0;
ALTER TABLE users ADD COLUMN login_at BIGINT NOT NULL DEFAULT 0;
CREATE INDEX users_admins ON users (role) WHERE disabled_at = 0;
-- The user of the first start runs the director, whatever an older director has stored.
UPDATE users SET role = 'admin' WHERE name = 'admin' AND NOT EXISTS (SELECT 1 FROM users AS other WHERE other.role = 'admin');
-- From where a token was asked for, and when it was last used.
ALTER TABLE tokens ADD COLUMN address TEXT NOT NULL DEFAULT '';
ALTER TABLE tokens ADD COLUMN used_at BIGINT NOT NULL DEFAULT 0;
CREATE INDEX tokens_user ON tokens (user_name);
CREATE INDEX tokens_expiry ON tokens (expires_at);
