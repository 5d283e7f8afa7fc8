ALTER TABLE orders ADD COLUMN paid_at timestamptz;
