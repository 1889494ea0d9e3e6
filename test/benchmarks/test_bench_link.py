"""bench_link: the table, and where two actors stop paying."""

from benchmarks import bench_link


def row(size, *ratios):
    links = [{'mbit': 100, 'compression': compression, 'steps_per_s': 800 * ratio, 'ratio': ratio,
              'lost': 1, 'bytes_per_step': size} for compression, ratio in zip(
                  ('none', 'zstd'), ratios, strict=True)]
    name = f'dummy/OBS{size}-FPS1000-SERIAL-v0' if size else 'ALE/Pong-v5'
    return {'env_id': name, 'one_process': 800.0, 'links': links}


def test_the_table_says_where_two_actors_stop_paying_by_compression():
    found = {'seconds': 6.0, 'cores': 2, 'rows': [
        row(1000, 2.0, 2.0), row(100_000, 0.5, 1.5), row(0, 1.0, 1.75)]}
    lines = bench_link.markdown(found).splitlines()
    assert lines[0] == '| environment | one process, steps/s | 100 Mbit/s | 100 Mbit/s, zstd |'
    assert lines[2] == ('| dummy/OBS1000-FPS1000-SERIAL-v0 | 800 | 2.00 (1,000 B) | '
                        '2.00 (1,000 B) |')
    assert lines[4] == '| ALE/Pong-v5 | 800 | 1.00 (0 B) | 1.75 (0 B) |'
    assert '100 Mbit/s, none: crossed at 10,000 bytes for each ms.' in lines
    assert '100 Mbit/s, zstd: not crossed.' in lines
    assert lines[-1].endswith('2 cores; 6 trajectories lost.')


def test_the_number_of_environments_follows_from_the_kind():
    assert bench_link.settings('dummy/OBS8-FPS1000-SERIAL-v0')['num_envs'] == '1'
    assert bench_link.settings('ALE/Pong-v5')['num_envs'] == '16'
