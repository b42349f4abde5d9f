//! Tests the limit on pools. It runs alone in its process, because it takes all of them.

use forebay_packet::pool::PoolError;
use forebay_packet::{Pool, PoolOptions};

#[test]
fn a_pool_above_the_limit_is_refused_until_another_is_freed() {
    let small = PoolOptions { chunks: 1, frame: 64, headroom: 0, ..PoolOptions::default() };
    let mut pools: Vec<_> = (0..256).map(|_| Pool::new(small).expect("below the limit")).collect();
    assert!(matches!(Pool::new(small), Err(PoolError::TooMany(256))));
    for index in [0, 100, 255] {
        let mut packet = pools[index].take().expect("every pool has one chunk");
        assert!(packet.write(&[index as u8; 64]));
        // A packet keeps its pool alive, and so its pool's number in use.
        drop(pools.swap_remove(index.min(pools.len() - 1)));
        let refused = Pool::new(small).is_err();
        assert_eq!((packet.data(), refused), (&[index as u8; 64][..], true));
        drop(packet);
        pools.push(Pool::new(small).expect("there is room again"));
        assert!(Pool::new(small).is_err());
    }
}
